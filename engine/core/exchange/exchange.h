// SPDX-License-Identifier: GPL-3.0-or-later
// The batches of a lone search: collected, sent and applied without the interpreter.
#pragma once

#ifdef __linux__

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
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
  std::int64_t id = 0;
};

// A connection and the network there. content_hash: results that name a network must have it. next_id: of the
// next request. target_ms: of the requests; none if not set. answers, positions: of answered requests.
struct Service {
  Stream* stream = nullptr;
  std::string network;
  std::string content_hash;
  std::int64_t next_id = 1;
  std::optional<double> target_ms{};
  std::int64_t answers = 0;
  std::int64_t positions = 0;
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
  int interrupt = -1;        // descriptor whose input ends the burst
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
class Exchange {
 public:
  // tree: must outlive the exchange. priority: of its requests.
  Exchange(Tree& tree, BatchRule rule, std::string priority);

  // Sends batches and applies answers until there is a reason to end. Throws the tree's exceptions
  // (std::bad_alloc), after which `slots` and `service` are still valid.
  BurstEnd run(const BurstLimits& limits);

  // Set by the caller between two bursts. slots: the batches in flight on the connection, and spare ones.
  Service service;
  std::vector<Slot> slots;

  const BatchRule& rule() const { return rule_; }
  std::int64_t in_flight() const;

  // Time of the first request.
  std::optional<BurstLimits::Time> first_sent() const { return first_sent_; }

 private:
  // Result of collecting. kCached: only cached positions were found, so the search continues. kLost: the
  // connection has ended.
  enum class Filled : std::uint8_t { kSent, kCached, kLost };

  std::int64_t id_of(const Message& message) const;
  bool take_answer();
  Filled fill(const RootInfo& root, const BurstLimits& limits);
  bool send(Slot& slot);
  std::int64_t in_time(const BurstLimits& limits, std::int64_t in_flight) const;

  Tree& tree_;
  const BatchRule rule_;
  const std::string priority_;
  std::optional<BurstLimits::Time> first_sent_;
};

}  // namespace wavefront::exchange

#endif
