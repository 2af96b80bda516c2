// SPDX-License-Identifier: GPL-3.0-or-later
// A client's connection to an ipc address.
#pragma once

#ifdef __linux__

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "zmtp/channel.h"

namespace wavefront::wire {

// Belongs to one thread, which sends and receives itself: no other one is woken for a message. A thread of
// the stream's own only writes what the system had no room for, and says once a second that the client is
// there, since a service may give up who does not answer its heartbeats; those are read with the next answer.
class Stream {
 public:
  // Connects without waiting. path: of the socket, or its abstract name after a zero byte. Throws
  // std::system_error, EAGAIN if too many wait to be taken there.
  Stream(const std::string& path, const MessageLimits& limits);
  ~Stream() { close(); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  int descriptor() const { return channel_.descriptor(); }

  // Sends a message without waiting; false if the connection has ended.
  bool send(std::span<const Bytes> frames);

  enum class Found { kMessage, kNothing, kEnd, kSignal };

  using Time = std::chrono::steady_clock::time_point;

  // Waits for a message, at most until then (nothing: for ever) or until a descriptor (if it is not negative)
  // is readable. kSignal: a signal came, which somebody may have to look at. Of a connection that has ended,
  // what came before is found first.
  Found wait(std::optional<Time> until, int interrupt);

  // Whether a message is there that came together with another one.
  bool has_message() const { return channel_.has_message(); }

  // The message that `wait` has found: a look at it, and the message itself.
  const Message& next() const { return channel_.next(); }
  Message take() { return *channel_.take(); }

  // Why it has ended, and whether that was before the handshake was over.
  Ending ending() const { return *ended_; }
  bool was_ready() const { return channel_.is_ready(); }

  // Ends the connection and the thread.
  void close();

 private:
  void help();

  Channel channel_;
  std::vector<unsigned char> scratch_;
  std::optional<Ending> ended_;

  std::mutex mutex_;
  std::condition_variable news_;
  bool closing_ = false;
  bool heartbeats_ = false;  // the handshake is over, and the peer knows them
  std::thread helper_;
};

}  // namespace wavefront::wire

#endif
