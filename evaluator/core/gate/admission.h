// SPDX-License-Identifier: GPL-3.0-or-later
// Who makes room when there are too many connections.
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

// Belongs to the gate's thread. Knows the connections that the service has not let in yet. Clients that have
// shown a key go after all those that have not; each of the two groups in the order of its Lobby.
class Admission {
 public:
  Admission(const ConnectionLimits& limits, const Roll& roll) : limits_(limits), roll_(roll) {}

  void add(std::uint64_t number, Door door, const std::string& source);

  // Notes that a connection got one step further in its handshake.
  void touch(std::uint64_t number);

  // Notes that a connection has shown a key that is let in.
  void prove(std::uint64_t number);

  // Forgets a connection: the service has let it in, or it has ended.
  void remove(std::uint64_t number);

  // The connection that has to end before another one from this source comes in; nothing if there is room.
  std::optional<std::uint64_t> displaced_by(Door door, const std::string& source) const;

  // The connection that has to end if there are no descriptors for one more at this door. The public door
  // takes none from the local one.
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
