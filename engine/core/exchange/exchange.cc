// SPDX-License-Identifier: GPL-3.0-or-later
#include "exchange/exchange.h"

#ifdef __linux__

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <stdexcept>
#include <utility>

#include "header/plain.h"

namespace wavefront::exchange {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kUnlimited = std::int64_t{1} << 40;

// Each frame has its own memory, aligned for any type.
std::span<const float> floats(const Frame& frame) {
  return {reinterpret_cast<const float*>(frame.bytes.get()), frame.size / sizeof(float)};
}

}  // namespace

Exchange::Exchange(Tree& tree, BatchRule rule, std::string priority)
    : tree_(tree), rule_(std::move(rule)), priority_(std::move(priority)) {}

std::int64_t Exchange::in_flight() const {
  return std::count_if(slots.begin(), slots.end(), [](const Slot& slot) { return slot.id != 0; });
}

BurstEnd Exchange::run(const BurstLimits& limits) {
  Filled filled = fill(tree_.root_info(), limits);
  if (filled == Filled::kLost) return BurstEnd::kOther;
  while (true) {
    if (in_flight() > 0) {
      const Stream::Found found = service.stream->wait(limits.patience, limits.interrupt);
      if (found == Stream::Found::kNothing) return BurstEnd::kSilence;
      if (found != Stream::Found::kMessage || !take_answer()) return BurstEnd::kOther;
    } else if (filled != Filled::kCached) {
      return BurstEnd::kIdle;
    }
    const RootInfo root = tree_.root_info();
    const auto nodes = static_cast<std::int64_t>(limits.nodes_as_playouts ? root.playouts : root.visits);
    if ((limits.nodes && nodes >= *limits.nodes) || root.visits >= limits.look_at ||
        root.mean_depth >= limits.depth)
      return BurstEnd::kLook;
    if (limits.hard && Clock::now() >= *limits.hard) return BurstEnd::kTime;
    filled = fill(root, limits);
    if (filled == Filled::kLost) return BurstEnd::kOther;
    if (service.stream->was_interrupted()) return BurstEnd::kSilence;
    if (Clock::now() >= limits.until) return BurstEnd::kTime;
  }
}

// Returns the id of a plain result of the network; 0 for any other message.
std::int64_t Exchange::id_of(const Message& message) const {
  const auto header = plain_result(frames_of(message));
  return header && (header->network.empty() || header->network == service.content_hash) ? header->id : 0;
}

// Applies the next message, if it is the evaluation of a batch in flight; otherwise leaves it in the stream.
bool Exchange::take_answer() {
  const Message& message = service.stream->next();
  const std::int64_t id = id_of(message);
  if (id == 0) return false;
  const auto slot = std::find_if(slots.begin(), slots.end(), [&](const Slot& each) { return each.id == id; });
  if (slot == slots.end()) return false;
  const int size = slot->batch->size();
  try {
    tree_.apply(*slot->batch, floats(message[1]), floats(message[2]), floats(message[3]));
  } catch (const std::invalid_argument&) {  // Wrong sizes or non-finite values; the tree is unchanged.
    return false;
  }
  slot->id = 0;
  ++service.answers;
  service.positions += size;
  service.stream->take();
  return true;
}

// Collects and sends batches until enough are in flight, like Search in engine/search/loop/driver.py. root:
// its current state.
Exchange::Filled Exchange::fill(const RootInfo& root, const BurstLimits& limits) {
  std::int64_t answered = 0;  // visits since `root` that needed no evaluation
  std::int64_t promoted = root.promoted;
  while (true) {
    const auto spare =
        std::find_if(slots.begin(), slots.end(), [](const Slot& each) { return each.id == 0; });
    const std::int64_t sent = in_flight();
    if (spare == slots.end() || sent >= rule_.in_flight) return Filled::kSent;
    std::int64_t visits_in_flight = 0;
    for (const Slot& each : slots) visits_in_flight += each.id != 0 ? each.batch->wanted() : 0;
    visits_in_flight += promoted;
    const auto nodes = static_cast<std::int64_t>(limits.nodes_as_playouts ? root.playouts : root.visits);
    const std::int64_t left = limits.nodes ? *limits.nodes - nodes - visits_in_flight - answered : kUnlimited;
    const Asked asked = rule_.next(root.visits, visits_in_flight, in_time(limits, sent));
    if (asked.target <= 0 || left <= 0) return Filled::kSent;
    Batch& batch = *spare->batch;
    const CollectResult result =
        tree_.collect(batch, asked.target, static_cast<std::uint64_t>(left), asked.ahead);
    answered += result.visits_done;
    promoted += result.promoted;
    if (batch.size() == 0) {  // Only collisions, or no visit needed an evaluation.
      tree_.cancel(batch);
      return result.cache_hits > 0 ? Filled::kCached : Filled::kSent;
    }
    if (!send(*spare)) return Filled::kLost;
  }
}

// After a failure the batch still counts as in flight: the code that detects the end of the connection
// resends unanswered batches.
bool Exchange::send(Slot& slot) {
  const Batch& batch = *slot.batch;
  EvaluateHeader header;
  header.id = slot.id = service.next_id++;
  header.count = batch.size();
  header.priority = priority_;
  header.network = service.network;
  header.target_ms = service.target_ms;
  if (!first_sent_) first_sent_ = Clock::now();
  const std::vector<unsigned char> first = written(header);
  const std::array frames{Bytes(first), bytes_of(batch.positions()), bytes_of(batch.move_offsets()),
                          bytes_of(batch.policy_indices())};
  return service.stream->send(frames);
}

// Returns the largest batch that is computed before the search must end.
std::int64_t Exchange::in_time(const BurstLimits& limits, std::int64_t in_flight) const {
  if (!limits.hard) return kUnlimited;
  const std::chrono::duration<double, std::milli> left = *limits.hard - Clock::now();
  return rule_.fitting(left.count() / static_cast<double>(in_flight + 1));
}

}  // namespace wavefront::exchange

#endif
