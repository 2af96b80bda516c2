// SPDX-License-Identifier: GPL-3.0-or-later
// A DeviceLoop between a client that asks for anything and a driver that does as it likes, at random: built
// with sanitizers and run by test_random_programs.py.
//
//     fuzz ROUNDS SEED
//
// A round is some hundred requests of one client. Each is answered once, with what belongs to it, by the loop
// or by whoever does what the loop has left. Prints what it has seen; the exit status is 1, with what is
// wrong on standard error, if something does not hold.

#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device_loop/device_loop.h"
#include "fuzzing.h"
#include "header/headers.h"
#include "listening.h"
#include "zmtp/stream.h"

namespace wavefront {

using namespace wire;
using namespace device;
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using Word = std::uintptr_t;

constexpr MessageLimits kLimits{4'000'000, 9'000'000, 8};

constexpr std::size_t kCapacity = 8, kMostMoves = kCapacity * 20, kSlots = 2;

constexpr int kBusy = 600, kBroken = 719;

constexpr double kLateMs = 20, kStuckMs = 3;

struct Seen {
  std::size_t direct = 0, usual = 0, crowded = 0, failed = 0, late = 0, not_finite = 0, taken = 0,
              answers = 0;
};

double now_ms() {
  return std::chrono::duration<double, std::milli>(Clock::now().time_since_epoch()).count();
}

float value_of(std::uint16_t move) {
  return static_cast<float>(move) + 0.25f;
}

// A batch in flight of a device, and a driver that takes its time, and now and then fails or does not return.
struct Room {
  alignas(8) std::array<std::byte, 16384> input{};
  alignas(8) std::array<std::byte, 4096> output{};
  Random random;
  int asks = 0;
  double busy_until_ms = 0;
  std::atomic<bool>* stuck = nullptr;

  static constexpr std::size_t kOffsetsAt = kCapacity * kPositionBytes;
  static constexpr std::size_t kMovesAt = kOffsetsAt + 4 * (kCapacity + 1) + 4;
  static constexpr std::size_t kMovesLeftAt = 12 * kCapacity, kLogitsAt = 16 * kCapacity;
};

extern "C" int queue_batch(Word address, Word bytes) {
  Room& room = *reinterpret_cast<Room*>(address);
  std::uint32_t moves;
  std::memcpy(&moves, room.input.data() + Room::kOffsetsAt + 4 * kCapacity, sizeof moves);
  require(bytes == 100 + 2 * moves, "the length of a copy follows from the moves");
  const std::size_t kind = below(room.random, 60);
  if (kind == 0) return kBroken;
  if (kind == 1) {
    *room.stuck = true;
    while (*room.stuck) std::this_thread::yield();
  }
  for (std::uint32_t i = 0; i < moves; ++i) {
    std::uint16_t move;
    std::memcpy(&move, room.input.data() + Room::kMovesAt + 2 * i, sizeof move);
    const float value = kind == 2 ? std::numeric_limits<float>::infinity() : value_of(move);
    std::memcpy(room.output.data() + Room::kLogitsAt + 4 * i, &value, sizeof value);
  }
  room.asks = static_cast<int>(below(room.random, 20));
  room.busy_until_ms = kind == 3 ? now_ms() + 2 * kLateMs : 0;
  return 0;
}

extern "C" int ask_batch(Word address) {
  Room& room = *reinterpret_cast<Room*>(address);
  if (now_ms() < room.busy_until_ms) return kBusy;
  return room.asks-- > 0 ? kBusy : 0;
}

extern "C" int activate_device(Word) {
  return 0;
}

template <typename Function>
Word address_of(Function* function) {
  return reinterpret_cast<Word>(function);
}

Program program_of(Room& room) {
  const Word self = reinterpret_cast<Word>(&room);
  Program program;
  program.input = {room.input.data(), Room::kOffsetsAt, Room::kMovesAt, kCapacity};
  program.output = {room.output.data(), Room::kMovesLeftAt, Room::kLogitsAt};
  program.most_moves = kMostMoves;
  program.steps = {{{address_of(queue_batch), {self, 0}, 2}, 1, 100, 2}};
  program.done = {address_of(ask_batch), {self}, 1};
  program.busy = kBusy;
  return program;
}

// The positions of a request, as a client has them.
struct Wanted {
  std::vector<unsigned char> positions;
  std::vector<std::uint32_t> offsets{0};
  std::vector<std::uint16_t> moves;
};

Wanted any_positions(Random& random) {
  const std::size_t count = 1 + below(random, below(random, 20) == 0 ? 2 * kCapacity : kCapacity);
  Wanted wanted;
  wanted.positions.resize(count * kPositionBytes);
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t moves = below(random, 20); moves > 0; --moves)
      wanted.moves.push_back(static_cast<std::uint16_t>(below(random, 1858)));
    wanted.offsets.push_back(static_cast<std::uint32_t>(wanted.moves.size()));
  }
  return wanted;
}

template <typename T>
Bytes bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const unsigned char*>(values.data()), values.size() * sizeof(T)};
}

// Does with a message what the loop has left: evaluates it if that is possible, else says so in one frame.
void answer_as_usual(Hub& hub, const Arrived& arrived) {
  const Message& message = arrived.message;
  const auto header = evaluate_header({message[0].bytes.get(), message[0].size});
  require(header.has_value(), "requests can be read");
  std::vector<float> logits;
  for (std::size_t i = 0; i + 1 < message[3].size; i += 2) {
    std::uint16_t move;
    std::memcpy(&move, message[3].bytes.get() + i, sizeof move);
    logits.push_back(value_of(move));
  }
  const auto count = static_cast<std::size_t>(header->count);
  const std::vector<float> wdl(3 * count), moves_left(count);
  const auto first = written(ResultHeader{header->id, 0.5, 0.5, header->count, "usual", "hash"});
  hub.send(arrived.number, std::array{Bytes(first), bytes_of(logits), bytes_of(wdl), bytes_of(moves_left)});
}

// What a loop and its device need, made anew after trouble.
struct Device {
  std::array<Room, kSlots> rooms;
  std::unique_ptr<DeviceLoop> loop;

  Device(Hub& hub, Random& random, std::atomic<bool>& stuck) {
    loop = std::make_unique<DeviceLoop>(hub, std::vector<std::string>{"", "net"},
                                        std::vector<std::string>{"play", "analysis"}, "run", "", kSlots,
                                        Call{address_of(activate_device), {0}, 1});
    for (std::size_t slot = 0; slot < kSlots; ++slot) {
      rooms[slot].random.seed(random());
      rooms[slot].stuck = &stuck;
      for (std::size_t positions = 1; positions <= kCapacity; ++positions)
        loop->prepare(slot, positions, program_of(rooms[slot]));
    }
  }
};

// The service: in the loop whenever a message is there, and with a guard that takes over from a driver that
// does not return.
class Service {
 public:
  Service(const std::string& name, std::uint64_t seed, Seen& seen)
      : hub_({kLimits, 1 << 24, 8}), random_(seed), seen_(seen), device_(fresh()) {
    hub_.listen(listening_at(name));
    thread_ = std::thread([this] { serve(); });
    guard_ = std::thread([this] { watch(); });
  }
  ~Service() {
    ending_ = true;
    thread_.join();
    guard_.join();
  }

 private:
  std::shared_ptr<Device> fresh() { return std::make_shared<Device>(hub_, random_, stuck_); }

  void serve() {
    while (!ending_) {
      hub_.wait(1);
      const auto next = hub_.next();
      if (next && below(random_, 4) != 0) run(next->number);
      if (auto arrived = hub_.take()) usual(*arrived);
    }
  }

  void usual(const Arrived& arrived) {
    ++seen_.usual;
    answer_as_usual(hub_, arrived);
  }

  void run(std::uint64_t connection) {
    const std::shared_ptr<Device> device = device_;
    DeviceLoop& loop = *device->loop;
    const Stop stop = loop.run(connection, now_ms() + static_cast<double>(below(random_, 4)), kLateMs);
    seen_.direct += loop.answered().size();
    seen_.crowded += stop == Stop::kCrowded;
    seen_.failed += stop == Stop::kFailed;
    seen_.late += stop == Stop::kLate;
    seen_.not_finite += stop == Stop::kNotFinite;
    seen_.taken += stop == Stop::kTaken;
    std::vector<Arrived> left;
    if (stop == Stop::kTaken) {
      const std::lock_guard lock(mutex_);
      left = std::move(taken_);
      taken_.clear();
    } else if (stop == Stop::kFailed || stop == Stop::kLate || stop == Stop::kNotFinite) {
      left = loop.give_up();
    } else {
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      device_ = fresh();
    }
    for (const Arrived& arrived : left) usual(arrived);
    require(loop.settle(), "a device is done with what was given up");
  }

  void watch() {
    while (!ending_) {
      std::this_thread::sleep_for(milliseconds(1));
      const std::lock_guard lock(mutex_);
      auto requests = device_->loop->take_over(kStuckMs);
      if (!requests) continue;
      for (Arrived& each : *requests) taken_.push_back(std::move(each));
      stuck_ = false;
    }
  }

  Hub hub_;
  Random random_;
  Seen& seen_;
  std::atomic<bool> ending_ = false, stuck_ = false;
  std::mutex mutex_;  // of what follows; the service's own thread alone changes the device
  std::shared_ptr<Device> device_;
  std::vector<Arrived> taken_;
  std::thread thread_, guard_;
};

// Asks for positions, most of the time as a search does, and checks what comes.
void ask(const std::string& name, std::size_t requests, Random& random, Seen& seen) {
  Stream stream(name, kLimits);
  std::map<std::int64_t, Wanted> sent;
  std::int64_t id = 0;
  while (requests > 0 || !sent.empty()) {
    while (requests > 0 && sent.size() < (below(random, 30) == 0 ? 5 : 2)) {
      --requests;
      EvaluateHeader header;
      header.id = ++id;
      Wanted wanted = any_positions(random);
      header.count = static_cast<std::int64_t>(wanted.offsets.size() - 1);
      if (below(random, 2) == 0) header.network = "net";
      if (below(random, 20) == 0) header.network = "another";
      if (below(random, 20) == 0) header.deadline_ms = 1e6;
      if (below(random, 20) == 0 && !wanted.moves.empty()) wanted.moves[0] = 2000;  // not sound
      const auto first = written(header);
      require(stream.send(std::array{Bytes(first), bytes_of(wanted.positions), bytes_of(wanted.offsets),
                                     bytes_of(wanted.moves)}),
              "the service is there");
      sent.emplace(id, std::move(wanted));
    }
    require(stream.wait(Clock::now() + std::chrono::seconds(20), -1) == Stream::Found::kMessage,
            "everything is answered");
    const Message message = stream.take();
    const auto header = result_header({message[0].bytes.get(), message[0].size});
    require(header.has_value() && message.size() == 4, "results can be read");
    const auto found = sent.find(header->id);
    require(found != sent.end(), "nothing is answered twice");
    const Wanted& wanted = found->second;
    require(message[1].size == 4 * wanted.moves.size(), "each move has its logit");
    require(message[2].size == 12 * (wanted.offsets.size() - 1), "each position has its W D L");
    for (std::size_t i = 0; i < wanted.moves.size(); ++i) {
      float value;
      std::memcpy(&value, message[1].bytes.get() + 4 * i, sizeof value);
      require(value == value_of(wanted.moves[i]), "a logit is that of its move");
    }
    sent.erase(found);
    ++seen.answers;
  }
}

int run(std::size_t rounds, std::uint64_t seed) {
  Random random(seed);
  Seen seen;
  for (std::size_t round = 0; round < rounds; ++round) {
    const std::string name =
        std::string(1, '\0') + "wavefront-loop-" + std::to_string(getpid()) + "-" + std::to_string(round);
    const Service service(name, random(), seen);
    Seen asked;
    ask(name, 1 + below(random, 300), random, asked);
    seen.answers += asked.answers;
  }
  std::printf("%zu direct %zu usual %zu crowded %zu failed %zu late %zu infinite %zu taken %zu answers\n",
              seen.direct, seen.usual, seen.crowded, seen.failed, seen.late, seen.not_finite, seen.taken,
              seen.answers);
  return 0;
}

}  // namespace
}  // namespace wavefront

int main(int count, char** arguments) {
  if (count != 3) return 2;
  return wavefront::run(std::strtoull(arguments[1], nullptr, 10), std::strtoull(arguments[2], nullptr, 10));
}
