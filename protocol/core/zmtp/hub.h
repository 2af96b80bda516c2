// SPDX-License-Identifier: GPL-3.0-or-later
// The service side of addresses without encryption: all client connections.
#pragma once

#ifdef __linux__

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "zmtp/channel.h"
#include "zmtp/silent_connections.h"

namespace wavefront::wire {

// A message with the number of its connection. Numbers are never reused.
struct Arrived {
  std::uint64_t number;
  Message message;
};

// The next message, which stays in the hub.
struct Waiting {
  std::uint64_t number;
  const Message& message;
};

struct HubLimits {
  MessageLimits messages;
  std::size_t kept;         // bytes of unread answers of a client
  std::size_t connections;  // at local addresses, and as many at the others
  // Connections of one source without a message. Not for local addresses, whose clients belong to one user.
  std::size_t per_source = std::numeric_limits<std::size_t>::max();
  std::size_t buffered = std::numeric_limits<std::size_t>::max();  // bytes of all clients
  std::chrono::milliseconds handshake{10'000};
};

// Number of endings, each with its own count.
inline constexpr std::size_t kEndings = kEndingNames.size();

// One thread waits and takes messages; any thread may call `send` and the counters. The hub has no thread and
// sends no heartbeats: a local peer cannot vanish without closing its socket, and the system probes the
// others (keep-alive).
//
// A client's socket is read while none of its messages waits to be taken, and the clients' messages are taken
// in turn. So a flood delays only its sender.
class Hub {
 public:
  // Throws std::system_error.
  explicit Hub(const HubLimits& limits);
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

  // Takes ownership of a listening socket. local: only the service's user can connect. Throws
  // std::system_error.
  void listen(Descriptor listener, bool local = true);

  // Accepts no more connections.
  void stop_listening();

  // Makes `wait` return when this descriptor is readable, too. Throws std::system_error.
  void watch(int descriptor);

  // Waits for a message or a watched descriptor, at most timeout_ms (negative: no limit), and not at all if
  // messages wait to be taken; returns true if a watched one is readable.
  bool wait(int timeout_ms);

  // Returns the next message, if any. Messages from clients disconnected for not reading are discarded.
  std::optional<Arrived> take();
  bool has_message() const { return !turns_.empty(); }

  // True if `ended` or `endings` returns something.
  bool has_events() const;

  // Returns the message that `take` would return without removing it; nothing if there is none, or if the end
  // of a connection comes first.
  std::optional<Waiting> next();

  // Returns connections that ended since the last call and whose messages have all been taken.
  std::vector<std::uint64_t> ended();

  // Returns the peer (address_of_peer); nullopt after the connection's end.
  std::optional<std::string> address_of(std::uint64_t number) const;

  // True if a connection was accepted at a local address.
  bool is_local(std::uint64_t number) const;

  // Bytes of answers that a client has not read; 0 after its end.
  std::size_t unread(std::uint64_t number) const;

  // Bytes that all connections keep.
  std::size_t buffered() const { return *buffered_; }

  // Sends a message without waiting; returns false if the client has gone.
  bool send(std::uint64_t number, std::span<const Bytes> frames);

  // Ends a connection.
  void hang_up(std::uint64_t number);

  std::size_t size() const;

  // Returns some of the connections that were closed since the last call.
  std::vector<Ended> endings();

  // Number of closed and refused connections for each reason.
  std::array<std::uint64_t, kEndings> counts() const;

  // Ends all connections after waiting bytes were sent or the time is over.
  void close(std::chrono::milliseconds linger);

 private:
  using Clock = std::chrono::steady_clock;

  struct Listener {
    Descriptor socket;
    bool local;
  };

  struct Client {
    std::uint64_t number;
    std::string address;
    bool local;
    Channel channel;
    // For the waiting thread.
    bool has_turn = false;   // in turns_
    bool is_paused = false;  // not read from until its messages are taken
    bool has_ended = false;
    std::mutex mutex{};         // for the member below
    std::uint32_t watched = 0;  // events that epoll reports
  };

  struct Deadline {
    Clock::time_point at;
    std::uint64_t number;
  };

  // Of local addresses, or of the others.
  struct Transport {
    SilentConnections silent;
    std::size_t connections = 0;
  };

  void accept_from(const Listener& listener);
  bool has_descriptors(int accepted, const Listener& listener) const;
  bool make_room(bool local, const std::string& source);
  bool displace(std::optional<std::uint64_t> number);
  void admit(Descriptor socket, const Listener& listener, const std::string& source);
  void refuse(const Descriptor& socket, Ending reason);
  void serve(std::uint64_t number, std::uint32_t events);
  void end(const std::shared_ptr<Client>& client, Ending reason);
  void note(const std::string& address, Ending reason);
  void watch(Client& client);
  void relieve();
  void expire();
  void pause_listening();
  int timeout(int timeout_ms);
  Transport& transport(bool local) { return transports_[local ? 1 : 0]; }
  std::shared_ptr<Client> client(std::uint64_t number) const;
  std::vector<std::shared_ptr<Client>> everybody() const;

  const HubLimits limits_;
  const std::shared_ptr<Bytecount> buffered_ = std::make_shared<Bytecount>();
  Descriptor epoll_;
  std::vector<unsigned char> scratch_;
  std::vector<Listener> listeners_;
  std::optional<Clock::time_point> listen_at_;  // end of a pause in accepting
  std::array<Transport, 2> transports_;
  std::deque<Deadline> handshakes_;
  std::uint64_t next_number_ = kFirstNumber;
  Clock::time_point last_message_;
  std::deque<std::shared_ptr<Client>> turns_;  // those with messages, or whose end is to be told
  std::vector<std::uint64_t> ended_;

  mutable std::mutex mutex_;  // for the members below
  std::unordered_map<std::uint64_t, std::shared_ptr<Client>> clients_;
  std::deque<Ended> endings_;
  std::array<std::uint64_t, kEndings> counts_{};

  static constexpr std::uint64_t kWatched = 0, kListener = 1, kFirstNumber = 2;
};

}  // namespace wavefront::wire

#endif
