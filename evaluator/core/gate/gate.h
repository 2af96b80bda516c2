// SPDX-License-Identifier: GPL-3.0-or-later
// Stands between the clients and the service's ROUTER socket, and bounds in bytes what a client can make the
// service keep.
//
// libzmq keeps the frames of a message to itself until the last one is there, and counts what waits by whole
// messages: who owns a ROUTER can bound neither. The gate accepts the clients' connections, follows the
// frames in them without keeping any (zmtp.h), and passes the bytes on to a connection of its own to the
// ROUTER, for each client another. What a client does not read waits here, where it is counted.
#pragma once

#ifdef __linux__

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "gate/admission.h"
#include "gate/byte_account.h"
#include "gate/farewell.h"
#include "gate/relay.h"
#include "gate/turns.h"
#include "zmtp/descriptor.h"
#include "zmtp/ending.h"

namespace wavefront::gate {

struct GateLimits {
  MessageLimits frames;
  AccountLimits link;
  ConnectionLimits connections;
  std::int64_t buffered;               // bytes of all connections together, arriving and unread
  std::chrono::milliseconds greeting;  // to show that it speaks ZeroMQ
};

// The endings that the gate counts, the first of all.
inline constexpr std::size_t kEndings = static_cast<std::size_t>(Ending::kAsked) + 1;

class Gate {
 public:
  // Starts the thread. Throws std::system_error.
  explicit Gate(const GateLimits& limits);
  ~Gate() { close(std::chrono::milliseconds(0)); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // Takes over a listening socket, whose clients go to the socket of this path. mechanism: NULL, or CURVE if
  // the service demands keys there. Throws std::system_error.
  void listen(Descriptor listener, std::string upstream_path, Door door, Mechanism mechanism);

  // Takes no more connections; those that there are go on.
  void stop_listening();

  // The connection behind a descriptor that the service has accepted; nothing if it is none of ours.
  std::shared_ptr<ByteAccount> link_of(int descriptor) const;

  // Connections at present.
  std::size_t size() const;

  // Bytes that are kept for all of them, arriving and unread.
  std::int64_t buffered() const { return board_->buffered; }

  // How many connections have ended for each reason.
  std::array<std::uint64_t, kEndings> counts() const;

  // Those of the connections ended or refused since the last call that are remembered, without those that
  // were closed by their peers.
  std::vector<Ended> news();

  // Ends the thread: once all connections have ended and what waits in them has been read, or after the time.
  void close(std::chrono::milliseconds linger);

 private:
  using Clock = std::chrono::steady_clock;

  struct Listener {
    Descriptor socket;
    std::string upstream_path;
    Door door;
    Mechanism mechanism;
  };
  struct Deadline {
    Clock::time_point at;
    std::uint64_t number;
  };

  void run();
  void round(int timeout_ms);
  int timeout_ms() const;
  void handle(std::uint64_t tag, std::uint32_t events);
  void answer_bell();
  static Descriptor spare_descriptor();
  void accept_from(std::size_t index);
  void admit(Descriptor client, const Listener& listener);
  bool reserve(Relay::Descriptors& descriptors, Door door) const;
  bool free_descriptors(Door door);
  void refuse_without_descriptor(const Listener& listener);
  void refuse(const Descriptor& client, const Listener& listener);
  void follow(std::uint64_t number, Relay& relay, std::size_t steps);
  bool may_connect() const;
  void connect_waiting();
  void relieve();
  void expire();
  void begin_to_close();
  bool dismiss(std::uint64_t number);
  void end(std::uint64_t number, Ending reason);
  void forget(std::uint64_t number, Ending reason);
  void note(std::string address, Ending reason);
  bool is_paused(Door door) const { return paused_[static_cast<std::size_t>(door)].has_value(); }
  void pause(Door door, std::chrono::milliseconds time);
  void pace_displacements();
  void watch_listeners();

  const GateLimits limits_;
  const std::string name_;  // of our sockets towards the service, before their numbers
  const std::shared_ptr<Board> board_;
  Descriptor epoll_;

  // Any thread.
  mutable std::mutex mutex_;
  std::deque<Listener> listeners_;
  std::atomic<bool> has_local_ = false;
  std::unordered_map<std::uint64_t, std::shared_ptr<ByteAccount>> links_;
  std::array<std::uint64_t, kEndings> counts_{};
  std::deque<Ended> news_;
  bool closing_ = false;
  Clock::time_point close_by_;

  // The gate's thread.
  std::vector<unsigned char> scratch_;
  Descriptor spare_;  // given up for a moment to refuse a connection when there is no descriptor for it
  std::unordered_map<std::uint64_t, std::unique_ptr<Relay>> relays_;
  std::uint64_t next_number_ = kFirstNumber;
  Admission admission_;
  Farewells farewells_;
  Turns waiting_;                            // for their connection to the service
  std::unordered_set<std::uint64_t> fresh_;  // connected to the service, which has not greeted them yet
  Clock::time_point connect_at_;             // the next one of those that wait
  std::deque<Deadline> greetings_;
  std::deque<Deadline> endings_;
  std::array<std::size_t, kDoors> refused_{};                    // since the last pause
  std::array<std::optional<Clock::time_point>, kDoors> paused_;  // until then
  Clock::time_point displace_at_;  // when the next connection may be displaced at the public door
  bool closes_ = false;            // it has begun to
  std::thread thread_;

  static constexpr std::uint64_t kFirstNumber = 1 << 16;  // the numbers below are those of listeners
};

}  // namespace wavefront::gate

#endif
