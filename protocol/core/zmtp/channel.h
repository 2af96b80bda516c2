// SPDX-License-Identifier: GPL-3.0-or-later
// One end of a connection: a socket, its received messages, and the bytes to be written.
#pragma once

#ifdef __linux__

#include <sys/uio.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>

#include "zmtp/descriptor.h"
#include "zmtp/message.h"
#include "zmtp/reader.h"

namespace wavefront::wire {

// Bytes kept by all connections of a hub.
using Bytecount = std::atomic<std::size_t>;

enum class Sent : std::uint8_t {
  kWhole,    // the kernel has all bytes
  kWaiting,  // some bytes wait here for `flush`
  kGone,     // the connection has ended
};

class Channel {
 public:
  // socket: connected; becomes non-blocking. type: DEALER or ROUTER. kept: maximum bytes that wait to be
  // written.
  // buffered: also counts the bytes of this channel. Sends the greeting at once. Throws std::system_error.
  Channel(Descriptor socket, std::string_view type, const MessageLimits& limits, std::size_t kept,
          std::shared_ptr<Bytecount> buffered = std::make_shared<Bytecount>());
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  int descriptor() const { return socket_.get(); }

  // -- one thread at a time

  // Reads available bytes with one system call; returns the reason if the connection has ended. Earlier
  // messages
  // can still be taken.
  std::optional<Ending> receive(std::span<unsigned char> scratch);

  std::optional<Message> take();

  // Ends the connection for both sides, and discards all that it keeps.
  void drop(Ending reason);

  bool has_message() const { return reader_.has_message(); }
  const Message& next() const { return reader_.next(); }
  bool is_ready() const { return reader_.is_ready(); }
  bool has_heartbeats() const { return reader_.has_heartbeats(); }

  // -- any thread

  // Sends a message of at least one frame without waiting; until the peer is ready, the channel keeps it.
  Sent send(std::span<const Bytes> frames);

  // Sends a heartbeat.
  void beat();

  // Writes waiting bytes without blocking; kWaiting if some are left.
  Sent flush();

  // Bytes that wait to be written.
  std::size_t unread() const;

  // Bytes of received messages and those that wait to be written.
  std::size_t bytes() const { return received_ + unread(); }

  // True if `flush` has something to write.
  bool is_waiting() const;

  // Time of the last send.
  std::chrono::steady_clock::time_point last_sent() const { return last_sent_; }

  // Ends the connection for both sides; the descriptor stays open.
  void hang_up();

  // Ends the connection and closes the descriptor; messages can still be taken.
  void close();

  // Reason why this side has ended the connection.
  std::optional<Ending> cut() const;

 private:
  Sent send_parts(std::span<iovec> parts, bool at_once);
  Sent write_waiting();
  void keep(std::span<const iovec> parts, std::size_t written);
  Sent fail(Ending reason);
  void send_pong(std::string_view context);
  void count_received();

  Descriptor socket_;
  const std::shared_ptr<Bytecount> buffered_;
  std::size_t received_ = 0;  // bytes of the reader, as counted
  MessageReader reader_;
  const std::size_t kept_;

  mutable std::mutex mutex_;  // for the members below
  bool open_ = false;         // the peer is ready for messages
  std::optional<Ending> cut_;
  std::deque<Frame> waiting_;
  std::size_t written_ = 0;  // bytes of the first waiting frame
  std::size_t waiting_bytes_ = 0;
  std::atomic<std::chrono::steady_clock::time_point> last_sent_{};
};

}  // namespace wavefront::wire

#endif
