// SPDX-License-Identifier: GPL-3.0-or-later
// Bursts of a search whose evaluator answers well, badly or not at all, at random: built with sanitizers and
// run by test_random_programs.py.
//
//     fuzz ROUNDS SEED
//
// A round is a search of some hundred visits from a new tree. Prints what it has seen; the exit status is 1,
// with what is wrong on standard error, if something does not hold.

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "chess/attacks.h"
#include "exchange/exchange.h"
#include "fuzzing.h"
#include "header/headers.h"
#include "listening.h"
#include "zmtp/hub.h"

namespace wavefront {

using namespace chess;
using namespace tree;
using namespace wire;
using namespace exchange;
namespace {

using Body = std::vector<unsigned char>;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr MessageLimits kLimits{4'000'000, 9'000'000, 8};

constexpr int kCapacity = 24;

Body floats(std::size_t count, float value) {
  Body body(count * sizeof(float));
  for (std::size_t i = 0; i < count; ++i) std::memcpy(body.data() + i * sizeof value, &value, sizeof value);
  return body;
}

Body result_header_of(std::int64_t id) {
  return written(ResultHeader{id, 0.5, 0.25, 1, "", ""});
}

// What an evaluator sends, spoilt in some way if `bad`.
std::vector<Body> answer_to(const Message& request, Random& random, bool bad) {
  const auto header = evaluate_header({request[0].bytes.get(), request[0].size});
  require(header.has_value() && request.size() == 4, "requests can be read");
  const auto count = static_cast<std::size_t>(header->count);
  require(request[1].size == count * sizeof(EncodedPosition) && request[2].size == 4 * (count + 1),
          "their arrays have the right sizes");
  const std::size_t moves = request[3].size / sizeof(std::uint16_t);
  std::vector<Body> frames{result_header_of(header->id), floats(moves, 0.5f), floats(3 * count, 0.25f),
                           floats(count, 30.0f)};
  if (!bad) return frames;
  Body& any = frames[below(random, frames.size())];
  switch (below(random, 6)) {
    case 0:
      frames[0] = result_header_of(header->id + 1 + static_cast<std::int64_t>(below(random, 5)));
      break;
    case 1:
      any.resize(below(random, any.size()));
      break;
    case 2:
      any.resize(any.size() + 1 + below(random, 9));
      break;
    case 3:
      any[below(random, any.size())] ^= static_cast<unsigned char>(1 + below(random, 255));
      break;
    case 4:
      frames.resize(1 + below(random, 3));
      break;
    default:
      frames[1 + below(random, 3)].back() = 0xFF;  // perhaps no number any more
      break;
  }
  return frames;
}

// Answers until it is told to end; some requests not, and now and then it cuts the connection.
class Peer {
 public:
  Peer(const std::string& name, std::uint64_t seed) : hub_({kLimits, 1 << 24, 8}), random_(seed) {
    hub_.listen(listening_at(name));
    thread_ = std::thread([this] { serve(); });
  }
  ~Peer() {
    ending_ = true;
    thread_.join();
  }

 private:
  void serve() {
    while (!ending_) {
      hub_.wait(1);
      while (auto arrived = hub_.take()) answer(*arrived);
    }
  }

  void answer(const Arrived& arrived) {
    const std::size_t kind = below(random_, 40);
    if (kind == 0) hub_.hang_up(arrived.number);
    if (kind == 1) return;
    const std::vector<Body> message = answer_to(arrived.message, random_, kind < 6);
    hub_.send(arrived.number, std::vector<Bytes>(message.begin(), message.end()));
  }

  Hub hub_;
  Random random_;
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

struct Seen {
  std::size_t visits = 0, bursts = 0, answers = 0, others = 0, silences = 0, ends = 0;
};

BatchRule any_rule(Random& random) {
  BatchRule rule;
  rule.best = 1 + static_cast<int>(below(random, kCapacity));
  if (below(random, 2) == 0) rule.curve = {{1, 0.1}, {8, 0.2}, {kCapacity, 1.0}};
  rule.largest = static_cast<int>(below(random, kCapacity));
  rule.filled = static_cast<int>(below(random, kCapacity));
  rule.large_tree = 1 + static_cast<int>(below(random, 64));
  rule.share = 1 + static_cast<int>(below(random, 32));
  rule.least = 1 + static_cast<int>(below(random, 4));
  rule.together = below(random, 2) == 0;
  rule.factor = below(random, 2) == 0 ? 0.0 : 1.0;
  rule.in_flight = 1 + static_cast<int>(below(random, 3));
  rule.second = static_cast<int>(below(random, 8));
  return rule;
}

BurstLimits any_limits(std::int64_t nodes, Random& random) {
  const auto now = Clock::now();
  BurstLimits limits{now + milliseconds(below(random, 4)),
                     now + milliseconds(1 + below(random, 4)),
                     {},
                     nodes,
                     below(random, 2) == 0,
                     std::numeric_limits<std::int64_t>::max(),
                     std::numeric_limits<double>::infinity()};
  if (below(random, 4) == 0) limits.hard = now + milliseconds(below(random, 3));
  if (below(random, 4) == 0) limits.look_at = static_cast<std::int64_t>(below(random, 400));
  return limits;
}

// What the interpreter does besides: it receives what is unusual, gives up what gets no answer, and sends the
// first batch.
class Driver {
 public:
  Driver(const std::string& name, Random& random, Seen& seen)
      : random_(random),
        seen_(seen),
        stream_(name, kLimits),
        tree_(SearchParams()),
        exchange_(tree_, any_rule(random), "play") {
    exchange_.service = {&stream_, "net", "hash"};
    for (int i = 0; i < exchange_.rule().in_flight; ++i) {
      batches_.push_back(std::make_unique<Batch>(kCapacity));
      exchange_.slots.push_back({batches_.back().get(), 0});
    }
  }

  void search(std::int64_t nodes) {
    for (int tries = 0; !lost_ && tries < 500 && tree_.root_info().visits < nodes; ++tries) {
      begin(nodes);
      const BurstLimits limits = any_limits(nodes, random_);
      const BurstEnd end = exchange_.run(limits);
      ++seen_.bursts;
      seen_.silences += end == BurstEnd::kSilence;
      check(nodes);
      if (end == BurstEnd::kOther) receive();
      if (end == BurstEnd::kSilence && below(random_, 4) == 0) give_up();
    }
    seen_.visits += tree_.root_info().visits;
    seen_.answers += static_cast<std::size_t>(exchange_.service.answers);
    give_up();
    tree_.clear();
  }

 private:
  void begin(std::int64_t nodes) {
    if (exchange_.in_flight() > 0) return;
    Slot& slot = exchange_.slots.front();
    const auto left = static_cast<std::uint64_t>(nodes - tree_.root_info().visits);
    tree_.collect(*slot.batch, 1, left);
    if (slot.batch->size() == 0) return tree_.cancel(*slot.batch);
    EvaluateHeader header;
    header.id = slot.id = exchange_.service.next_id++;
    header.count = slot.batch->size();
    const std::vector<unsigned char> first = written(header);
    const auto bytes = [](auto values) {
      return Bytes(reinterpret_cast<const unsigned char*>(values.data()), values.size_bytes());
    };
    const std::vector<Bytes> frames{first, bytes(slot.batch->positions()), bytes(slot.batch->move_offsets()),
                                    bytes(slot.batch->policy_indices())};
    stream_.send(frames);
  }

  void check(std::int64_t nodes) {
    const RootInfo root = tree_.root_info();
    require(root.batches_in_flight == exchange_.in_flight(), "the books are right");
    require(root.visits <= nodes, "no visit is one too many");
    for (const Slot& slot : exchange_.slots) {
      require(slot.id < exchange_.service.next_id, "numbers are used once");
      require((slot.id != 0) == (slot.batch->size() > 0), "spare batches are empty");
    }
  }

  void receive() {
    ++seen_.others;
    switch (stream_.wait(Clock::now(), -1)) {
      case Stream::Found::kMessage:
        stream_.take();
        give_up();
        break;
      case Stream::Found::kEnd:
        ++seen_.ends;
        lost_ = true;
        break;
      default:
        break;
    }
  }

  void give_up() {
    for (Slot& slot : exchange_.slots) {
      if (slot.id != 0) tree_.cancel(*slot.batch);
      slot.id = 0;
    }
  }

  Random& random_;
  Seen& seen_;
  Stream stream_;
  Tree tree_;
  Exchange exchange_;
  std::vector<std::unique_ptr<Batch>> batches_;
  bool lost_ = false;
};

int run(std::size_t rounds, std::uint64_t seed) {
  initialise_attacks();
  Random random(seed);
  Seen seen;
  for (std::size_t round = 0; round < rounds; ++round) {
    const std::string name =
        std::string(1, '\0') + "wavefront-bursts-" + std::to_string(getpid()) + "-" + std::to_string(round);
    const Peer peer(name, random());
    Driver(name, random, seen).search(1 + static_cast<std::int64_t>(below(random, 600)));
  }
  std::printf("%zu visits %zu bursts %zu answers %zu others %zu silences %zu ends\n", seen.visits,
              seen.bursts, seen.answers, seen.others, seen.silences, seen.ends);
  return 0;
}

}  // namespace
}  // namespace wavefront

int main(int count, char** arguments) {
  if (count != 3) return 2;
  return wavefront::run(std::strtoull(arguments[1], nullptr, 10), std::strtoull(arguments[2], nullptr, 10));
}
