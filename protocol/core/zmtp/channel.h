// SPDX-License-Identifier: GPL-3.0-or-later
// One end of a connection: a socket, what has come by it, and what waits to be written to it.
#pragma once

#ifdef __linux__

#include <sys/uio.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>

#include "zmtp/descriptor.h"
#include "zmtp/message.h"
#include "zmtp/reader.h"

namespace wavefront::wire {

enum class Sent : std::uint8_t {
  kWhole,    // the system has it
  kWaiting,  // part of it waits here for `flush`
  kGone,     // there is nobody to send it to
};

class Channel {
 public:
  // socket: connected; is made not to block. type: DEALER or ROUTER. kept: bytes that may wait to be written.
  // The greeting goes out at once. Throws std::system_error.
  Channel(Descriptor socket, std::string_view type, const MessageLimits& limits, std::size_t kept);
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  int descriptor() const { return socket_.get(); }

  // -- one thread at a time

  // Takes in what is there, by one call of the system; the reason why the connection has ended, if it has.
  // What came before can still be taken.
  std::optional<Ending> receive(std::span<unsigned char> scratch);

  std::optional<Message> take() { return reader_.take(); }
  bool has_message() const { return reader_.has_message(); }
  const Message& next() const { return reader_.next(); }
  bool is_ready() const { return reader_.is_ready(); }
  bool has_heartbeats() const { return reader_.has_heartbeats(); }

  // -- any thread

  // Sends a message of at least one frame, without waiting; before the peer is ready it waits here.
  Sent send(std::span<const Bytes> frames);

  // Says that we are there.
  void beat();

  // Writes what waits, without waiting itself; kWaiting if something is left.
  Sent flush();

  // Whether there is something that `flush` could write.
  bool is_waiting() const;

  // When the last bytes were sent.
  std::chrono::steady_clock::time_point last_sent() const { return last_sent_; }

  // Ends the connection, for both sides; the descriptor lives on.
  void hang_up();

  // Why it has ended from here.
  std::optional<Ending> cut() const;

 private:
  Sent send_parts(std::span<iovec> parts, bool at_once);
  Sent write_waiting();
  void keep(std::span<const iovec> parts, std::size_t written);
  Sent fail(Ending reason);
  void send_pong(std::string_view context);

  Descriptor socket_;
  MessageReader reader_;
  const std::size_t kept_;

  mutable std::mutex mutex_;  // of what follows
  bool open_ = false;         // the peer is ready for messages
  std::optional<Ending> cut_;
  std::deque<Frame> waiting_;
  std::size_t written_ = 0;  // of the first of them
  std::size_t waiting_bytes_ = 0;
  std::atomic<std::chrono::steady_clock::time_point> last_sent_{};
};

}  // namespace wavefront::wire

#endif
