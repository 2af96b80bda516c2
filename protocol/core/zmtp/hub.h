// SPDX-License-Identifier: GPL-3.0-or-later
// A service's end of an ipc address: all connections of its clients.
#pragma once

#ifdef __linux__

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "zmtp/channel.h"

namespace wavefront::wire {

// A message, by the number of the connection that it came by. Numbers are not used again.
struct Arrived {
  std::uint64_t number;
  Message message;
};

// Belongs to one thread, which sleeps in `wait` and takes messages; `send` and what counts are for any
// thread. No thread of its own, and no heartbeats: nobody vanishes from a socket of this machine without its
// end.
class Hub {
 public:
  // kept: bytes of answers that one client may leave unread. Throws std::system_error.
  Hub(const MessageLimits& limits, std::size_t kept, std::size_t connections);
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

  // Takes over a listening socket. Throws std::system_error.
  void listen(Descriptor listener);

  // Takes no more connections.
  void stop_listening();

  // Has `wait` end when this descriptor is readable, too. Throws std::system_error.
  void watch(int descriptor);

  // Waits for a message or for what is watched, at most so many milliseconds (negative: for ever); true if
  // the latter is readable. Takes in what there is, unless messages wait to be taken.
  bool wait(int timeout_ms);

  // The next message, if there is one. Those of clients closed for not reading are discarded.
  std::optional<Arrived> take();
  bool has_message() const { return !arrived_.empty(); }

  // The message that `take` returns next, left where it is; null if there is none, or if the end of a
  // connection comes first.
  const Arrived* next();

  // The connections that have ended since the last call and whose messages have all been taken.
  std::vector<std::uint64_t> ended();

  // Who is at the other end, localhost:UID:GID:PID, empty if that is not known; nothing for who has gone.
  std::optional<std::string> address_of(std::uint64_t number) const;

  // Sends a message without waiting; false if there is no such client any more.
  bool send(std::uint64_t number, std::span<const Bytes> frames);

  // Ends a connection.
  void hang_up(std::uint64_t number);

  std::size_t size() const;

  // Some of those that were closed since the last call, and how many were in all.
  std::vector<Ended> news();

  // Ends all connections, once what waits has been read or the time is over.
  void close(std::chrono::milliseconds linger);

 private:
  using Clock = std::chrono::steady_clock;

  struct Client {
    std::uint64_t number;
    std::string address;
    Channel channel;
    bool has_spoken = false;  // a message has come; for the thread that waits
    std::mutex mutex{};       // of the following
    bool is_watched = false;  // for room to write
  };

  bool is_cut_off(std::uint64_t number) const;
  void accept_all();
  bool make_room();
  void admit(Descriptor socket);
  void serve(std::uint64_t number, std::uint32_t events);
  void end(const std::shared_ptr<Client>& client, Ending reason);
  void watch_for_room(Client& client, bool wanted);
  void pause_listening();
  int timeout_until_listening(int timeout_ms);
  std::shared_ptr<Client> client(std::uint64_t number) const;
  std::vector<std::shared_ptr<Client>> everybody() const;

  const MessageLimits limits_;
  const std::size_t kept_;
  const std::size_t connections_;
  Descriptor epoll_;
  std::vector<unsigned char> scratch_;
  std::vector<Descriptor> listeners_;
  bool listening_ = true;
  Clock::time_point listen_at_;
  std::uint64_t next_number_ = kFirstNumber;
  Clock::time_point last_message_;
  std::deque<Arrived> arrived_;  // with no frames: the connection has ended
  std::vector<std::uint64_t> ended_;

  mutable std::mutex mutex_;  // of what follows
  std::unordered_map<std::uint64_t, std::shared_ptr<Client>> clients_;
  std::deque<Ended> news_;

  static constexpr std::uint64_t kWatched = 0, kListener = 1, kFirstNumber = 2;
};

}  // namespace wavefront::wire

#endif
