// SPDX-License-Identifier: GPL-3.0-or-later
// Parses a ZMTP 3 stream into messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "zmtp/framing.h"
#include "zmtp/message.h"

namespace wavefront::wire {

// Reads a peer's stream with the mechanism NULL: greeting, command READY, then messages and commands.
class MessageReader {
 public:
  explicit MessageReader(const MessageLimits& limits) : limits_(limits) {}

  // Parses more bytes; returns a reason if the connection must end. No more may be parsed then.
  // Throws std::bad_alloc.
  std::optional<Ending> read(std::span<const unsigned char> data);

  // Returns where the next bytes may be stored without parsing: the rest of a frame, or nothing.
  std::span<unsigned char> rest();

  // Reports that `size` bytes were stored there.
  void fill(std::size_t size);

  // Returns the next complete message, if any.
  std::optional<Message> take();
  bool has_message() const { return !messages_.empty(); }

  // Returns the message that `take` would return without removing it. Requires `has_message`.
  const Message& next() const { return messages_.front(); }

  // True once READY was received; messages may be sent from then on.
  bool is_ready() const { return ready_; }

  // True if the peer supports heartbeats (ZMTP 3.1).
  bool has_heartbeats() const { return greeting_.minor_version() >= 1; }

  // Bytes of the incomplete message and of those to be taken, with an allowance for each frame.
  std::size_t bytes() const { return bytes_; }

  // Discards the incomplete message and those to be taken. Nothing may be parsed after that.
  void drop();

  // Returns the context of the newest PING since the last call.
  std::optional<std::string> take_ping();

 private:
  std::optional<Ending> begin_frame();
  std::optional<Ending> end_frame();
  std::optional<Ending> obey(const Frame& command);

  MessageLimits limits_;
  Greeting greeting_;
  bool ready_ = false;
  FrameHead head_;
  bool in_frame_ = false;
  Frame frame_;
  std::size_t filled_ = 0;         // bytes of the current frame
  std::size_t message_bytes_ = 0;  // bytes of the current message
  Message message_;
  std::deque<Message> messages_;
  std::size_t bytes_ = 0;
  std::optional<std::string> ping_;
};

}  // namespace wavefront::wire
