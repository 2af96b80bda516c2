// SPDX-License-Identifier: GPL-3.0-or-later
// The visible structure of a ZMTP 3 stream: the boundaries and sizes of its frames.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "zmtp/framing.h"
#include "zmtp/message.h"

namespace wavefront::gate {

using namespace wire;

// Memory of a frame in addition to its bytes.
inline constexpr std::int64_t kFrameCost = 64;

// Under CURVE, smaller frames are not counted by size, because heartbeats look like them.
inline constexpr std::int64_t kSmallFrame = 32;

// The bytes of a message's frame, including its overhead.
std::int64_t cost_of(std::size_t frame_bytes, Mechanism mechanism);

// Follows a client's stream: the greeting, then frames, whose bytes it skips.
//
// With the mechanism NULL it sees where messages end. CURVE encrypts each frame, including whether it is the
// last of its message, so only the sizes of frames are limited.
class FrameReader {
 public:
  explicit FrameReader(const MessageLimits& limits) : limits_(limits) {}

  // Reads on. Returns the reason if the connection must end.
  std::optional<Ending> read(const unsigned char* data, std::size_t size);

  // True after the signature, which identifies ZeroMQ's protocol.
  bool has_signature() const { return greeting_.has_signature(); }

  Mechanism mechanism() const { return greeting_.mechanism(); }

  // Completed steps of the client's handshake: the signature, the greeting, and at most two commands.
  std::size_t steps() const {
    return has_signature() + (mechanism() != Mechanism::kUnknown) +
           std::min<std::size_t>(handshake_frames_, 2);
  }

  // Cost in the service of the frames of messages that have begun since the last call.
  std::int64_t take_cost();

  // Frames since the last call whose message is unknown.
  std::int64_t take_opaque_frames();

 private:
  std::optional<Ending> begin_frame();
  std::optional<Ending> begin_opaque_frame(std::uint64_t size);
  std::optional<Ending> begin_message_frame(std::uint64_t size, bool more);

  MessageLimits limits_;
  Greeting greeting_;
  FrameHead head_;
  std::uint64_t left_ = 0;              // bytes of the frame
  std::uint64_t handshake_frames_ = 0;  // so far
  std::uint64_t message_bytes_ = 0;     // of the message that has not ended
  std::uint64_t message_frames_ = 0;
  std::int64_t cost_ = 0;
  std::int64_t opaque_frames_ = 0;
};

// Follows the service's stream until the end of the handshake: the greeting, then commands.
class HandshakeReader {
 public:
  void read(const unsigned char* data, std::size_t size);

  // Bytes of the greeting so far.
  std::size_t greeting_bytes() const { return greeting_bytes_; }

  // True after the command READY. Under CURVE the service sends it to clients with an allowed key.
  bool is_ready() const { return ready_; }

  // True if a command could follow.
  bool is_between_frames() const { return left_ == 0 && !head_.is_begun(); }

 private:
  std::size_t greeting_bytes_ = 0;
  bool ready_ = false;
  FrameHead head_;
  std::uint64_t left_ = 0;  // bytes of the frame
  std::string name_;        // of the command, preceded by its length
};

}  // namespace wavefront::gate
