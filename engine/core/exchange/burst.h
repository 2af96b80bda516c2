// SPDX-License-Identifier: GPL-3.0-or-later
// A burst: apply results, collect and send batches without the interpreter, for some milliseconds.
#pragma once

#ifdef __linux__

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "exchange/batch_rule.h"
#include "tree/tree.h"
#include "zmtp/stream.h"

namespace wavefront::exchange {

using namespace tree;
using namespace wire;

// A batch, and the number of its request while it is in flight; 0 for a spare one.
struct Slot {
  Batch* batch;
  std::int64_t id;
};

struct BurstLimits {
  using Time = std::chrono::steady_clock::time_point;

  Time until;                         // ends with the first answer from then on
  Time patience;                      // end of the longest wait for an answer
  std::optional<Time> hard;           // deadline of answers to what is sent
  std::optional<std::int64_t> nodes;  // maximum visits or playouts in all
  bool nodes_as_playouts = false;
  std::int64_t look_at = 0;  // root visits at which Python must check the search,
  double depth = 0;          // and the mean depth
  int interrupt = -1;        // descriptor whose input ends a wait like `patience`
};

enum class BurstEnd : std::uint8_t {
  kTime,     // `until` is over
  kLook,     // `look_at` or `depth` is reached: Python must check the search
  kIdle,     // nothing is in flight, and only decided games are left
  kSilence,  // `patience` is over, or there is input at `interrupt`
  kOther,    // Python must receive: the next message is no plain result of a batch in flight, the connection
             // has ended, or a signal arrived
};

// A burst handles plain results only. Other messages remain in the stream, and Python receives them later.
class Burst {
 public:
  // rule, priority, network, content_hash: must outlive the burst. content_hash: of the network; results that
  // name a network must have it. next_id: of the next request. slots: batches in flight, collected from the
  // tree, and spare ones. target_ms: of the requests; none if not set.
  Burst(Tree& tree, Stream& stream, const BatchRule& rule, std::string_view priority,
        std::string_view network, std::string_view content_hash, std::int64_t next_id,
        std::vector<Slot> slots, std::optional<double> target_ms = std::nullopt);

  // Sends batches and applies answers until there is a reason to end. Call it once. Throws the tree's
  // exceptions (std::bad_alloc).
  BurstEnd run(const BurstLimits& limits);

  // The final state of the batches, and counts of requests and answers; valid after an exception, too.
  const std::vector<Slot>& slots() const { return slots_; }
  std::int64_t next_id() const { return next_id_; }
  std::int64_t evaluations() const { return evaluations_; }
  std::int64_t batches() const { return batches_; }
  std::int64_t answers() const { return answers_; }

 private:
  // Result of collecting. kCached: only cached positions were found, so the search continues. kLost: the
  // connection has ended.
  enum class Filled : std::uint8_t { kSent, kCached, kLost };

  std::int64_t id_of(const Message& message) const;
  bool take_answer();
  Filled fill(const RootInfo& root, const BurstLimits& limits);
  bool send(Slot& slot);
  std::int64_t in_time(const BurstLimits& limits, int in_flight) const;

  Tree& tree_;
  Stream& stream_;
  const BatchRule& rule_;
  std::string_view priority_;
  std::string_view network_;
  std::string_view content_hash_;
  std::int64_t next_id_;
  std::vector<Slot> slots_;
  std::optional<double> target_ms_;
  std::int64_t evaluations_ = 0;
  std::int64_t batches_ = 0;
  std::int64_t answers_ = 0;
};

}  // namespace wavefront::exchange

#endif
