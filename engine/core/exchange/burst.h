// SPDX-License-Identifier: GPL-3.0-or-later
// A search's calls without the interpreter, for some milliseconds: answers are taken in, and what is chosen
// with their help is sent.
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

// A batch, and the number of its request while it is in flight; 0 if it is a spare one.
struct Slot {
  Batch* batch;
  std::int64_t id;
};

struct BurstLimits {
  using Time = std::chrono::steady_clock::time_point;

  Time until;                         // after an answer that comes then or later it ends
  Time patience;                      // so long at most an answer is waited for
  std::optional<Time> hard;           // what is sent has to be back by then
  std::optional<std::int64_t> nodes;  // as many visits, or playouts, may there be in all
  bool nodes_as_playouts = false;
  std::int64_t look_at = 0;  // with so many visits of the root somebody has to look at the search,
  double depth = 0;          // and at such a mean depth
};

enum class BurstEnd : std::uint8_t {
  kTime,     // `until` is over
  kLook,     // somebody has to look: at so many visits, or at such a depth
  kIdle,     // nothing is in flight any more, and nothing to be found but decided games
  kSilence,  // `patience` is over
  kOther,    // somebody else has to receive: what comes next is no plain result of a batch in flight, or the
             // connection has ended; or a signal came
};

// The ordinary case alone is treated here. Whatever else comes stays where it is, to be received as if there
// had been no burst.
class Burst {
 public:
  // rule, priority, network, content_hash: as long as it lives. content_hash: of the network, which results
  // name if they name one. next_id: of the next request. slots: the batches in flight,
  // which were collected from the tree, and spare ones. target_ms: of the requests; none if not set.
  Burst(Tree& tree, Stream& stream, const BatchRule& rule, std::string_view priority,
        std::string_view network, std::string_view content_hash, std::int64_t next_id,
        std::vector<Slot> slots, std::optional<double> target_ms = std::nullopt);

  // Waits for answers and sends further batches until there is a reason to end. To be called once. Throws
  // what the tree throws (std::bad_alloc).
  BurstEnd run(const BurstLimits& limits);

  // What has become of the batches, and the counts of what was sent and answered; after an exception, too.
  const std::vector<Slot>& slots() const { return slots_; }
  std::int64_t next_id() const { return next_id_; }
  std::int64_t evaluations() const { return evaluations_; }
  std::int64_t batches() const { return batches_; }
  std::int64_t answers() const { return answers_; }

 private:
  // What came of collecting. kCached: in the end nothing was found that needs the evaluator, but some of it
  // in the cache, so that the search goes on. kLost: the connection has ended.
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
