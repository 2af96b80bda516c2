// SPDX-License-Identifier: GPL-3.0-or-later
// Counts of admitted clients at each door.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace wavefront::gate {

// Where clients connect. Each door has its own limit of connections.
enum class Door : std::uint8_t {
  kPublic,  // open to unauthenticated clients, too
  kLocal,   // an ipc address that only the service's user can open
};

inline constexpr std::size_t kDoors = 2;

struct ConnectionLimits {
  std::size_t connections;  // clients per door
  std::size_t per_source;   // unauthenticated, of one source at the public door

  // Additional connections for unauthenticated clients, and as many again for administrators.
  std::size_t reserve() const { return std::clamp<std::size_t>(connections / 4, 1, 64); }
};

// Any thread may use it.
class Roll {
 public:
  explicit Roll(const ConnectionLimits& limits) : limits_(limits) {}

  // Counts a client; false, without counting it, if there are too many.
  bool enter(Door door, bool administrator) {
    const std::lock_guard lock(mutex_);
    std::size_t& count = counts_[static_cast<std::size_t>(door)];
    if (count >= limits_.connections + (administrator ? limits_.reserve() : 0)) return false;
    ++count;
    return true;
  }

  void leave(Door door) {
    const std::lock_guard lock(mutex_);
    --counts_[static_cast<std::size_t>(door)];
  }

  // Current limit of unauthenticated connections.
  std::size_t room(Door door) const {
    const std::lock_guard lock(mutex_);
    const std::size_t count = counts_[static_cast<std::size_t>(door)];
    return std::max(limits_.reserve(), limits_.connections - std::min(limits_.connections, count));
  }

 private:
  const ConnectionLimits limits_;
  mutable std::mutex mutex_;
  std::array<std::size_t, kDoors> counts_{};
};

}  // namespace wavefront::gate
