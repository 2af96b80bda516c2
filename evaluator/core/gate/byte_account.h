// SPDX-License-Identifier: GPL-3.0-or-later
// The bytes that one client makes the service keep, counted by the gate and the service.
#pragma once

#ifdef __linux__

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "gate/bell.h"
#include "gate/roll.h"
#include "gate/zmtp.h"

namespace wavefront::gate {

// Limits in bytes.
struct AccountLimits {
  std::int64_t arriving;  // sent by the client, not taken by the service; beyond it, reading pauses
  std::int64_t kept;      // held by the service, and unread answers; beyond it, the client is disconnected
  std::int64_t promised;  // the same, beyond which the service accepts no further request
};

// Shared by all links of a gate. buffered: arriving and unread bytes of all links.
struct Board {
  explicit Board(const ConnectionLimits& limits) : roll(limits) {}

  Bell bell;
  Roll roll;
  std::atomic<std::int64_t> buffered{0};
};

// The account of one connection. Any thread may use it, even after the connection has ended; it counts
// nothing then.
class ByteAccount {
 public:
  ByteAccount(std::uint64_t number, std::string address, Door door, const AccountLimits& limits,
              std::shared_ptr<Board> board);

  const std::uint64_t number;
  const std::string address;  // of the client, as ZeroMQ would name it
  const Door door;            // where it was accepted

  // -- for the service

  // Admits the client, which has sent its first message; false if there are too many. Before that, the gate
  // may displace the connection.
  bool establish(bool administrator);

  // Charges bytes until `release`; false, without charging, if there is no room.
  bool charge(std::int64_t bytes);
  void release(std::int64_t bytes);

  // Converts a request's charge into the bytes of its answer, counted until they reach the gate. Negative
  // bytes for an answer that could not be sent.
  void answer(std::int64_t charged, std::int64_t bytes);

  // Notes that the service has taken a message, with frames of this total cost (`cost_of`).
  void took(std::int64_t cost);

  // Asks the gate to end the connection.
  void cut();

  std::int64_t arriving() const;
  std::int64_t held() const;
  std::int64_t unread() const;

  // -- for the gate

  // Sets how to count frames; known after the greeting.
  void speaks(Mechanism mechanism);
  Mechanism mechanism() const { return mechanism_.load(std::memory_order_relaxed); }

  // Counts frames whose forwarding begins. False if reading from the client must pause until the bell rings.
  bool relayed(std::int64_t cost, std::int64_t opaque_frames);

  // Counts bytes from the service, of which `waiting` wait for the client to read. False if the client must
  // be disconnected.
  bool brought(std::int64_t bytes, std::int64_t waiting);

  // Counts waiting bytes that the client has read.
  void read(std::int64_t bytes);

  bool is_to_be_cut() const;
  bool is_established() const;

  // True if `establish` has failed since the last call.
  bool take_refusal();

  // Removes its counts from the board; false, without that, if the service has admitted the client.
  bool dismiss();

  // Removes its counts from the board.
  void end();

 private:
  std::int64_t kept() const;
  bool is_full() const;
  void unpause();  // with the lock held, as for the next one
  void take_off();

  const AccountLimits limits_;
  const std::shared_ptr<Board> board_;
  std::atomic<Mechanism> mechanism_{Mechanism::kUnknown};
  mutable std::mutex mutex_;
  std::int64_t arriving_ = 0;
  std::int64_t held_ = 0;
  std::int64_t on_the_way_ = 0;  // bytes of answers between the service and the gate
  std::int64_t unread_ = 0;
  // Since the service last took a message: frames under CURVE without the forgiven ones, and all of them.
  std::int64_t opaque_frames_ = 0;
  std::int64_t all_opaque_frames_ = 0;
  std::int64_t forgiven_until_ = 0;  // when opaque frames were last forgiven, in seconds
  bool paused_ = false;
  bool cut_ = false;
  bool established_ = false;
  bool refused_ = false;
  bool ended_ = false;
};

}  // namespace wavefront::gate

#endif
