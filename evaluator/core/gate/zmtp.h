// SPDX-License-Identifier: GPL-3.0-or-later
// What can be told of a ZMTP 3 stream from the outside: where its frames begin, and how large they are.
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

// The memory that a frame takes beside its bytes.
inline constexpr std::int64_t kFrameCost = 64;

// Under CURVE, frames with fewer bytes are not counted by size: heartbeats look like them.
inline constexpr std::int64_t kSmallFrame = 32;

// The bytes of a frame of a message, with what it takes beside them.
std::int64_t cost_of(std::size_t frame_bytes, Mechanism mechanism);

// Follows what a client sends: the greeting, then frames, whose bytes it skips.
//
// With the mechanism NULL it sees where messages end. With CURVE each frame is encrypted and so is whether it
// is the last of its message: then only the sizes of frames are limited here.
class FrameReader {
 public:
  explicit FrameReader(const MessageLimits& limits) : limits_(limits) {}

  // Reads on; the reason why the connection has to end, if there is one.
  std::optional<Ending> read(const unsigned char* data, std::size_t size);

  // Whether the signature has come, by which one knows ZeroMQ's protocol.
  bool has_signature() const { return greeting_.has_signature(); }

  Mechanism mechanism() const { return greeting_.mechanism(); }

  // Steps of the handshake that the client has taken: the signature, the greeting, and at most two commands.
  std::size_t steps() const {
    return has_signature() + (mechanism() != Mechanism::kUnknown) +
           std::min<std::size_t>(handshake_frames_, 2);
  }

  // What the frames of messages that have begun since the last call will take in the service.
  std::int64_t take_cost();

  // Frames since the last call of which it cannot be told to which message they belong.
  std::int64_t take_opaque_frames();

 private:
  std::optional<Ending> begin_frame();
  std::optional<Ending> begin_opaque_frame(std::uint64_t size);
  std::optional<Ending> begin_message_frame(std::uint64_t size, bool more);

  MessageLimits limits_;
  Greeting greeting_;
  FrameHead head_;
  std::uint64_t left_ = 0;              // of the frame's bytes
  std::uint64_t handshake_frames_ = 0;  // so far
  std::uint64_t message_bytes_ = 0;     // of the message that has not ended
  std::uint64_t message_frames_ = 0;
  std::int64_t cost_ = 0;
  std::int64_t opaque_frames_ = 0;
};

// Follows what the service sends to a client until their handshake is over: the greeting, then commands.
class HandshakeReader {
 public:
  void read(const unsigned char* data, std::size_t size);

  // Bytes of the greeting so far.
  std::size_t greeting_bytes() const { return greeting_bytes_; }

  // Whether the command READY has come. Under CURVE the service sends it to a client whose key is let in.
  bool is_ready() const { return ready_; }

  // Whether a command could follow.
  bool is_between_frames() const { return left_ == 0 && !head_.is_begun(); }

 private:
  std::size_t greeting_bytes_ = 0;
  bool ready_ = false;
  FrameHead head_;
  std::uint64_t left_ = 0;  // of the frame's bytes
  std::string name_;        // of the command, with its length in front
};

}  // namespace wavefront::gate
