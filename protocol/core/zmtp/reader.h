// SPDX-License-Identifier: GPL-3.0-or-later
// From the bytes of a ZMTP 3 stream to messages.
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

// Reads what a peer sends with the mechanism NULL: the greeting, the command READY, then messages, and
// commands between them.
class MessageReader {
 public:
  explicit MessageReader(const MessageLimits& limits) : limits_(limits) {}

  // Reads on; the reason why the connection has to end, if there is one. Nothing may be read after that.
  // Throws std::bad_alloc.
  std::optional<Ending> read(std::span<const unsigned char> data);

  // Where the next bytes of the stream may be put without being read: the rest of a frame, or nothing.
  std::span<unsigned char> rest();

  // Tells that so many bytes were put there.
  void fill(std::size_t size);

  // The next whole message; nothing if there is none.
  std::optional<Message> take();
  bool has_message() const { return !messages_.empty(); }

  // The message that `take` would return, which stays; there has to be one.
  const Message& next() const { return messages_.front(); }

  // Whether the command READY has come: messages may be sent from then on.
  bool is_ready() const { return ready_; }

  // Whether the peer knows heartbeats, which came with ZMTP 3.1.
  bool has_heartbeats() const { return greeting_.minor_version() >= 1; }

  // The context of the newest PING since the last call.
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
  std::size_t filled_ = 0;         // of the frame's bytes
  std::size_t message_bytes_ = 0;  // of the message that has not ended
  Message message_;
  std::deque<Message> messages_;
  std::optional<std::string> ping_;
};

}  // namespace wavefront::wire
