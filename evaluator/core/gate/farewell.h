// SPDX-License-Identifier: GPL-3.0-or-later
// Refused connections, kept open until their clients have read the reason.
#pragma once

#ifdef __linux__

#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "zmtp/descriptor.h"

namespace wavefront::gate {

using namespace wire;

// At most kMost, for kTime each. If a client sends something after its socket was closed, systems that
// discard received data on a reset would lose the reason.
class Farewells {
 public:
  using Clock = std::chrono::steady_clock;

  void add(Descriptor client) {
    if (waiting_.size() >= kMost) waiting_.pop_front();
    waiting_.push_back({std::move(client), Clock::now() + kTime});
  }

  // When the next one ends, if any.
  std::optional<Clock::time_point> next() const {
    return waiting_.empty() ? std::nullopt : std::optional(waiting_.front().until);
  }

  void expire(Clock::time_point now) {
    while (!waiting_.empty() && waiting_.front().until <= now) waiting_.pop_front();
  }

  void clear() { waiting_.clear(); }

 private:
  static constexpr std::size_t kMost = 64;
  static constexpr std::chrono::milliseconds kTime{500};

  struct Farewell {
    Descriptor client;
    Clock::time_point until;
  };
  std::deque<Farewell> waiting_;
};

}  // namespace wavefront::gate

#endif
