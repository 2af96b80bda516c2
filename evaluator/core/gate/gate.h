// SPDX-License-Identifier: GPL-3.0-or-later
// The gate between the clients and the service's ROUTER socket. It limits the bytes that a client can make
// the service keep.
//
// libzmq holds the frames of a message until the last one arrives, and counts waiting data by whole messages.
// So the owner of a ROUTER can limit neither. The gate accepts the clients' connections, follows their frames
// without storing any (zmtp.h), and forwards the bytes to the ROUTER, through one connection per client. Data
// that a client does not read waits here, where it is counted.
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
  std::int64_t buffered;               // arriving and unread bytes of all connections
  std::chrono::milliseconds greeting;  // time limit for ZeroMQ's greeting
};

// Number of endings that the gate counts, from the first of the enumeration on.
inline constexpr std::size_t kEndings = static_cast<std::size_t>(Ending::kAsked) + 1;

class Gate {
 public:
  // Starts the thread. Throws std::system_error.
  explicit Gate(const GateLimits& limits);
  ~Gate() { close(std::chrono::milliseconds(0)); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // Takes over a listening socket, whose clients are connected to the socket at this path. mechanism: NULL,
  // or CURVE if the service requires keys there. Throws std::system_error.
  void listen(Descriptor listener, std::string upstream_path, Door door, Mechanism mechanism);

  // Accepts no more connections; existing ones continue.
  void stop_listening();

  // The connection behind a descriptor accepted by the service; nothing if it is not the gate's.
  std::shared_ptr<ByteAccount> link_of(int descriptor) const;

  // Number of open connections.
  std::size_t size() const;

  // Arriving and unread bytes of all connections.
  std::int64_t buffered() const { return board_->buffered; }

  // Number of ended connections for each reason.
  std::array<std::uint64_t, kEndings> counts() const;

  // Connections ended or refused since the last call, as far as remembered, except those closed by their
  // peers.
  std::vector<Ended> news();

  // Ends the thread once all connections have ended and their waiting data is read, or after the time.
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
  const std::string name_;  // prefix of our sockets towards the service, before their numbers
  const std::shared_ptr<Board> board_;
  Descriptor epoll_;

  // For any thread.
  mutable std::mutex mutex_;
  std::deque<Listener> listeners_;
  std::atomic<bool> has_local_ = false;
  std::unordered_map<std::uint64_t, std::shared_ptr<ByteAccount>> links_;
  std::array<std::uint64_t, kEndings> counts_{};
  std::deque<Ended> news_;
  bool closing_ = false;
  Clock::time_point close_by_;

  // For the gate's thread.
  std::vector<unsigned char> scratch_;
  Descriptor spare_;  // closed briefly to refuse a connection when descriptors are exhausted
  std::unordered_map<std::uint64_t, std::unique_ptr<Relay>> relays_;
  std::uint64_t next_number_ = kFirstNumber;
  Admission admission_;
  Farewells farewells_;
  Turns waiting_;                            // for a connection to the service
  std::unordered_set<std::uint64_t> fresh_;  // connected to the service, without its greeting yet
  Clock::time_point connect_at_;             // time of the next connection for those that wait
  std::deque<Deadline> greetings_;
  std::deque<Deadline> endings_;
  std::array<std::size_t, kDoors> refused_{};                    // since the last pause
  std::array<std::optional<Clock::time_point>, kDoors> paused_;  // end of the pause
  Clock::time_point displace_at_;  // when the public door may displace the next connection
  bool closes_ = false;            // true once closing has begun
  std::thread thread_;

  static constexpr std::uint64_t kFirstNumber = 1 << 16;  // lower numbers are those of listeners
};

}  // namespace wavefront::gate

#endif
