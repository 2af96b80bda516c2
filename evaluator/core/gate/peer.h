// SPDX-License-Identifier: GPL-3.0-or-later
// Who is at the other end of a socket.
#pragma once

#ifdef __linux__

#include <string>

namespace wavefront::gate {

// The address of a peer as ZeroMQ names it: the number of a tcp one, localhost:UID:GID:PID of one on this
// machine's own sockets; empty if it is not known.
std::string address_of_peer(int descriptor);

// What stands for the place that a peer comes from: an IPv4 address, the network of an IPv6 one (64 bits), or
// a user of this machine. For a local peer it is the process.
std::string source_of_peer(int descriptor, bool local);

// The name that a peer's socket of this machine is bound to, an abstract one with a zero byte in front; empty
// if there is none.
std::string name_of_peer(int descriptor);

}  // namespace wavefront::gate

#endif
