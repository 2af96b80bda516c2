// SPDX-License-Identifier: GPL-3.0-or-later
// The peer of a socket.
#pragma once

#ifdef __linux__

#include <string>

namespace wavefront::gate {

// The address of a peer as ZeroMQ names it: the number of a tcp peer, localhost:UID:GID:PID of a local one;
// empty if unknown.
std::string address_of_peer(int descriptor);

// The source of a peer for limits: an IPv4 address, the network of an IPv6 address (64 bits), or a local
// user. For a peer at the local door it is the process.
std::string source_of_peer(int descriptor, bool local);

// The name of a local peer's socket, an abstract one with a leading zero byte; empty if there is none.
std::string name_of_peer(int descriptor);

}  // namespace wavefront::gate

#endif
