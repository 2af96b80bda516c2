// What travels: frames, and the limits of those that a peer may send.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace wavefront {

struct Frame {
  std::unique_ptr<unsigned char[]> bytes;
  std::size_t size = 0;
};

using Message = std::vector<Frame>;

struct MessageLimits {
  std::size_t frame_bytes;
  std::size_t message_bytes;  // of all frames of a message
  std::size_t message_frames;
};

// Why a connection has ended.
enum class Ending : std::uint8_t {
  kPeer,       // the other side closed it
  kForeign,    // what came is not ZMTP 3 with the mechanism NULL
  kMalformed,  // frames that ZMTP does not have
  kFrame,      // a frame with too many bytes
  kMessage,    // a message with too many bytes
  kParts,      // a message of too many frames
  kUnread,     // more bytes than the other side may leave unread
  kMemory,     // there is none for what it sends
};

inline constexpr std::array kEndingNames = {"peer",    "foreign", "malformed", "frame",
                                            "message", "parts",   "unread",    "memory"};

}  // namespace wavefront
