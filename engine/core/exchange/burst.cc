// SPDX-License-Identifier: GPL-3.0-or-later
#include "exchange/burst.h"

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

std::int64_t count_of(const std::vector<Slot>& slots) {
  return std::count_if(slots.begin(), slots.end(), [](const Slot& slot) { return slot.id != 0; });
}

}  // namespace

Burst::Burst(Tree& tree, Stream& stream, const BatchRule& rule, std::string_view priority,
             std::string_view network, std::string_view content_hash, std::int64_t next_id,
             std::vector<Slot> slots, std::optional<double> target_ms)
    : tree_(tree),
      stream_(stream),
      rule_(rule),
      priority_(priority),
      network_(network),
      content_hash_(content_hash),
      next_id_(next_id),
      slots_(std::move(slots)),
      target_ms_(target_ms) {}

BurstEnd Burst::run(const BurstLimits& limits) {
  Filled filled = fill(tree_.root_info(), limits);
  if (filled == Filled::kLost) return BurstEnd::kOther;
  while (true) {
    if (count_of(slots_) > 0) {
      const Stream::Found found = stream_.wait(limits.patience, limits.interrupt);
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
    if (Clock::now() >= limits.until) return BurstEnd::kTime;
  }
}

// Returns the id of a plain result of the network; 0 for any other message.
std::int64_t Burst::id_of(const Message& message) const {
  const auto header = plain_result(frames_of(message));
  return header && (header->network.empty() || header->network == content_hash_) ? header->id : 0;
}

// Applies the next message, if it is the evaluation of a batch in flight; otherwise leaves it in the stream.
bool Burst::take_answer() {
  const Message& message = stream_.next();
  const std::int64_t id = id_of(message);
  if (id == 0) return false;
  const auto slot =
      std::find_if(slots_.begin(), slots_.end(), [&](const Slot& each) { return each.id == id; });
  if (slot == slots_.end()) return false;
  try {
    tree_.apply(*slot->batch, floats(message[1]), floats(message[2]), floats(message[3]));
  } catch (const std::invalid_argument&) {  // Wrong sizes or non-finite values; the tree is unchanged.
    return false;
  }
  slot->id = 0;
  ++answers_;
  stream_.take();
  return true;
}

// Collects and sends batches until enough are in flight, like Search in engine/search/driver.py. root: its
// current state.
Burst::Filled Burst::fill(const RootInfo& root, const BurstLimits& limits) {
  std::int64_t answered = 0;  // visits since `root` that needed no evaluation
  std::int64_t promoted = root.promoted;
  while (true) {
    const auto spare =
        std::find_if(slots_.begin(), slots_.end(), [](const Slot& each) { return each.id == 0; });
    const std::int64_t in_flight = count_of(slots_);
    if (spare == slots_.end() || in_flight >= rule_.in_flight) return Filled::kSent;
    std::int64_t visits_in_flight = 0;
    for (const Slot& each : slots_) visits_in_flight += each.id != 0 ? each.batch->wanted() : 0;
    visits_in_flight += promoted;
    const auto nodes = static_cast<std::int64_t>(limits.nodes_as_playouts ? root.playouts : root.visits);
    const std::int64_t left = limits.nodes ? *limits.nodes - nodes - visits_in_flight - answered : kUnlimited;
    const Asked asked =
        rule_.next(root.visits, visits_in_flight, in_time(limits, static_cast<int>(in_flight)));
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
bool Burst::send(Slot& slot) {
  const Batch& batch = *slot.batch;
  EvaluateHeader header;
  header.id = slot.id = next_id_++;
  header.count = batch.size();
  header.priority = priority_;
  header.network = network_;
  header.target_ms = target_ms_;
  ++batches_;
  evaluations_ += batch.size();
  const std::vector<unsigned char> first = written(header);
  const std::array frames{Bytes(first), bytes_of(batch.positions()), bytes_of(batch.move_offsets()),
                          bytes_of(batch.policy_indices())};
  return stream_.send(frames);
}

// Returns the largest batch that is computed before the search must end.
std::int64_t Burst::in_time(const BurstLimits& limits, int in_flight) const {
  if (!limits.hard) return kUnlimited;
  const std::chrono::duration<double, std::milli> left = *limits.hard - Clock::now();
  return rule_.fitting(left.count() / (in_flight + 1));
}

}  // namespace wavefront::exchange

#endif
