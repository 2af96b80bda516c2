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

// Used by one thread, which sends and receives itself, so no other thread is woken for a message. The
// stream's
// helper thread only writes bytes that the kernel did not accept, and sends a heartbeat each second: a
// service
// may disconnect a client that does not answer its heartbeats, and those are read with the next answer.
class Stream {
 public:
  // Connects without waiting. path: of the socket, or an abstract name after a zero byte. Throws
  // std::system_error, EAGAIN if the listener's backlog is full.
  Stream(const std::string& path, const MessageLimits& limits);
  ~Stream() { close(); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  int descriptor() const { return channel_.descriptor(); }

  // Sends a message without waiting; returns false if the connection has ended.
  bool send(std::span<const Bytes> frames);

  enum class Found { kMessage, kNothing, kEnd, kSignal };

  using Time = std::chrono::steady_clock::time_point;

  // Waits for a message until a time (nullopt: no limit) or until a descriptor (if not negative) is readable.
  // kSignal: the caller may have to handle a signal. Messages received before the connection's end are
  // returned
  // first.
  Found wait(std::optional<Time> until, int interrupt);

  // True if the last `wait` saw input at its interrupt, even if it found a message.
  bool was_interrupted() const { return interrupted_; }

  // True if another message was received together with the previous one.
  bool has_message() const { return channel_.has_message(); }

  // The message that `wait` has found: without removing it, and removed.
  const Message& next() const { return channel_.next(); }
  Message take() { return *channel_.take(); }

  // Reason of the connection's end, and whether the handshake had completed.
  Ending ending() const { return *ended_; }
  bool was_ready() const { return channel_.is_ready(); }

  // Ends the connection and the thread.
  void close();

 private:
  void help();

  Channel channel_;
  std::vector<unsigned char> scratch_;
  std::optional<Ending> ended_;
  bool interrupted_ = false;

  std::mutex mutex_;
  std::condition_variable news_;
  bool closing_ = false;
  bool heartbeats_ = false;  // the handshake has completed and the peer supports them
  std::thread helper_;
};

}  // namespace wavefront::wire

#endif
