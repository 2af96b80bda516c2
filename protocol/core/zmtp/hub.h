// SPDX-License-Identifier: GPL-3.0-or-later
// The service side of an ipc address: all client connections.
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

// A message with the number of its connection. Numbers are never reused.
struct Arrived {
  std::uint64_t number;
  Message message;
};

// One thread waits and takes messages; any thread may call `send` and the counters. The hub has no thread and
// sends no heartbeats, because a local peer cannot vanish without closing its socket.
class Hub {
 public:
  // kept: maximum bytes of unread answers per client. Throws std::system_error.
  Hub(const MessageLimits& limits, std::size_t kept, std::size_t connections);
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

  // Takes ownership of a listening socket. Throws std::system_error.
  void listen(Descriptor listener);

  // Accepts no more connections.
  void stop_listening();

  // Makes `wait` return when this descriptor is readable, too. Throws std::system_error.
  void watch(int descriptor);

  // Waits for a message or a watched descriptor, at most timeout_ms (negative: no limit); returns true if a
  // watched one is readable. Reads from sockets unless messages wait to be taken.
  bool wait(int timeout_ms);

  // Returns the next message, if any. Messages from clients disconnected for not reading are discarded.
  std::optional<Arrived> take();
  bool has_message() const { return !arrived_.empty(); }

  // True if `ended` or `news` returns something.
  bool has_news() const;

  // Returns the message that `take` would return without removing it; null if there is none, or if the end of
  // a
  // connection comes first.
  const Arrived* next();

  // Returns connections that ended since the last call and whose messages have all been taken.
  std::vector<std::uint64_t> ended();

  // Returns the peer as localhost:UID:GID:PID, empty if unknown; nullopt after the connection's end.
  std::optional<std::string> address_of(std::uint64_t number) const;

  // Sends a message without waiting; returns false if the client has gone.
  bool send(std::uint64_t number, std::span<const Bytes> frames);

  // Ends a connection.
  void hang_up(std::uint64_t number);

  std::size_t size() const;

  // Returns some of the connections that were closed since the last call.
  std::vector<Ended> news();

  // Ends all connections after waiting bytes were sent or the time is over.
  void close(std::chrono::milliseconds linger);

 private:
  using Clock = std::chrono::steady_clock;

  struct Client {
    std::uint64_t number;
    std::string address;
    Channel channel;
    bool has_spoken = false;  // has sent a message; used by the waiting thread only
    std::mutex mutex{};       // for the member below
    bool is_watched = false;  // epoll reports room to write
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
  std::deque<Arrived> arrived_;  // an entry without frames marks the end of its connection
  std::vector<std::uint64_t> ended_;

  mutable std::mutex mutex_;  // for the members below
  std::unordered_map<std::uint64_t, std::shared_ptr<Client>> clients_;
  std::deque<Ended> news_;

  static constexpr std::uint64_t kWatched = 0, kListener = 1, kFirstNumber = 2;
};

}  // namespace wavefront::wire

#endif
