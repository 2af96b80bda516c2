// SPDX-License-Identifier: GPL-3.0-or-later
// Choice of the connection to displace when there are too many.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "gate/lobby.h"
#include "gate/roll.h"

namespace wavefront::gate {

// The connections that the service has not admitted yet. Belongs to the gate's thread. Clients with a proven
// key are displaced after all others; each of the two groups is in the order of its Lobby.
class Admission {
 public:
  Admission(const ConnectionLimits& limits, const Roll& roll) : limits_(limits), roll_(roll) {}

  void add(std::uint64_t number, Door door, const std::string& source);

  // Notes a step of a connection's handshake.
  void touch(std::uint64_t number);

  // Notes that a connection has shown an allowed key.
  void prove(std::uint64_t number);

  // Removes a connection that was admitted or has ended.
  void remove(std::uint64_t number);

  // The connection to end before another from this source is accepted; nothing if there is room.
  std::optional<std::uint64_t> displaced_by(Door door, const std::string& source) const;

  // The connection to end if no descriptor is left for one more at this door. The public door displaces none
  // from the local one.
  std::optional<std::uint64_t> dispensable_for(Door door) const;

 private:
  struct Lobbies {
    Lobby strangers;
    Lobby proven;

    std::optional<std::uint64_t> victim() const;
  };
  struct Place {
    Door door;
    std::string source;
  };

  Lobbies& at(Door door) { return lobbies_[static_cast<std::size_t>(door)]; }
  const Lobbies& at(Door door) const { return lobbies_[static_cast<std::size_t>(door)]; }

  const ConnectionLimits limits_;
  const Roll& roll_;
  std::array<Lobbies, kDoors> lobbies_;
  std::unordered_map<std::uint64_t, Place> places_;
};

}  // namespace wavefront::gate
