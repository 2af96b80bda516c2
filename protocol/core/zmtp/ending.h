// SPDX-License-Identifier: GPL-3.0-or-later
// Why a connection has ended: the gate's, the hub's and a stream's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace wavefront::wire {

enum class Ending : std::uint8_t {
  kPeer,         // the other side closed it
  kForeign,      // what came is not ZMTP 3 with a mechanism that this side may have
  kLate,         // the greeting did not come in time
  kSilent,       // it had not authenticated, or sent no message, when another one needed its place
  kMalformed,    // frames that ZMTP does not have
  kFrame,        // a frame with too many bytes
  kMessage,      // a message with too many bytes
  kParts,        // a message of too many frames
  kUnread,       // more bytes than the other side may leave unread
  kCrowded,      // it held the most when all connections together held too much
  kConnections,  // there were as many clients as there may be
  kDescriptors,  // the process has no descriptors left
  kAsked,        // the service asked for it
  kRefused,      // the other side has too many connections
  kMemory,       // there is none for what it sends
};

inline constexpr std::array kEndingNames = {"peer",        "foreign",     "late",  "silent",  "malformed",
                                            "frame",       "message",     "parts", "unread",  "crowded",
                                            "connections", "descriptors", "asked", "refused", "memory"};

// A connection that has ended from here, for what its client did.
struct Ended {
  std::string address;
  Ending reason;
};

}  // namespace wavefront::wire
