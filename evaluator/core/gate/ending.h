// Why a connection of the gate has ended.
#pragma once

#include <array>
#include <cstddef>

namespace wavefront {

enum class Ending {
  kPeer,         // the client or the service closed it
  kForeign,      // what came is not ZMTP 3 of a mechanism that the service may have
  kLate,         // the greeting did not come in time
  kSilent,       // it had not authenticated when another client needed its place
  kMalformed,    // frames that ZMTP does not have
  kFrame,        // a frame with too many bytes
  kMessage,      // a message with too many bytes
  kParts,        // a message of too many frames
  kUnread,       // more answers than the client may leave unread
  kCrowded,      // it held the most when all connections together held too much
  kConnections,  // there were as many clients as there may be
  kDescriptors,  // the process has no descriptors left
  kAsked,        // the service asked for it
};

inline constexpr std::array kEndingNames = {"peer",        "foreign",     "late",  "silent", "malformed",
                                            "frame",       "message",     "parts", "unread", "crowded",
                                            "connections", "descriptors", "asked"};

inline constexpr std::size_t kEndings = kEndingNames.size();

}  // namespace wavefront
