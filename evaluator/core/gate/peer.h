// Who is at the other end of a socket.
#pragma once

#ifdef __linux__

#include <string>

namespace wavefront {

// The address of a peer as ZeroMQ names it: the number of a tcp one, localhost:UID:GID:PID of one on this
// machine's own sockets; empty if it is not known.
std::string address_of_peer(int descriptor);

// The name that a peer's socket of this machine is bound to, an abstract one with a zero byte in front; empty
// if there is none.
std::string name_of_peer(int descriptor);

}  // namespace wavefront

#endif
