// SPDX-License-Identifier: GPL-3.0-or-later
// Reasons for the end of a connection, in hub and stream.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace wavefront::wire {

enum class Ending : std::uint8_t {
  kPeer,         // the other side closed it
  kForeign,      // not ZMTP 3, or an unsupported mechanism
  kLate,         // the handshake timed out
  kSilent,       // without a message when a new connection needed its place
  kMalformed,    // invalid frames
  kFrame,        // a frame with too many bytes
  kMessage,      // a message with too many bytes
  kParts,        // a message with too many frames
  kUnread,       // the other side left too many bytes unread
  kCrowded,      // it held the most bytes when all connections together held too many
  kConnections,  // the maximum number of clients was reached
  kDescriptors,  // the process has no descriptors left
  kRefused,      // the other side has too many connections
  kMemory,       // out of memory for received data
};

inline constexpr std::array kEndingNames = {"peer",        "foreign",     "late",    "silent", "malformed",
                                            "frame",       "message",     "parts",   "unread", "crowded",
                                            "connections", "descriptors", "refused", "memory"};

// A connection that this side ended because of its client.
struct Ended {
  std::string address;
  Ending reason;
};

}  // namespace wavefront::wire
