// SPDX-License-Identifier: GPL-3.0-or-later
// The peer of a socket.
#pragma once

#ifdef __linux__

#include <string>

namespace wavefront::wire {

// The address of a peer as ZeroMQ names it: the number of a tcp peer, localhost:UID:GID:PID of a local one;
// empty if unknown.
std::string address_of_peer(int descriptor);

// The source of a peer for limits: an IPv4 address, the network of an IPv6 address (64 bits), or a local
// user. For a local peer it is the process.
std::string source_of_peer(int descriptor, bool local);

// True if a tcp peer has sent more than CURVE's handshake, to a ROUTER that has not accepted its key.
bool sends_too_much(int descriptor);

}  // namespace wavefront::wire

#endif
