// SPDX-License-Identifier: GPL-3.0-or-later
// What one client takes of the service's memory, as the gate and the service see it.
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

// In bytes.
struct AccountLimits {
  std::int64_t arriving;  // sent by the client and not taken by the service: beyond, its bytes stay outside
  std::int64_t kept;  // held by the service for it, and answers that it has not read: beyond, it is closed
  std::int64_t promised;  // the same, beyond which the service takes no further request
};

// Shared by all links of a gate. buffered: arriving and unread of all of them together, in bytes.
struct Board {
  explicit Board(const ConnectionLimits& limits) : roll(limits) {}

  Bell bell;
  Roll roll;
  std::atomic<std::int64_t> buffered{0};
};

// The account of one connection. Any thread may use it, also after the connection has ended: then nothing is
// counted any more.
class ByteAccount {
 public:
  ByteAccount(std::uint64_t number, std::string address, Door door, const AccountLimits& limits,
              std::shared_ptr<Board> board);

  const std::uint64_t number;
  const std::string address;  // of the client, as ZeroMQ would name it
  const Door door;            // that it came in by

  // -- for the service

  // Lets the client in, which has sent its first message; false if there are too many. Until then the gate
  // ends the connection when it needs the place.
  bool establish(bool administrator);

  // Whether there is room for that many bytes; if so they count until they are released.
  bool charge(std::int64_t bytes);
  void release(std::int64_t bytes);

  // Turns what was charged for a request into that many bytes of an answer, which count until the gate has
  // them. Negative bytes for an answer that could not be sent.
  void answer(std::int64_t charged, std::int64_t bytes);

  // Tells that a whole message was taken, with frames of this cost together (`cost_of`).
  void took(std::int64_t cost);

  // Asks the gate to end the connection.
  void cut();

  std::int64_t arriving() const;
  std::int64_t held() const;
  std::int64_t unread() const;

  // -- for the gate

  // How to count frames, which is known after the greeting.
  void speaks(Mechanism mechanism);
  Mechanism mechanism() const { return mechanism_.load(std::memory_order_relaxed); }

  // Counts frames that begin to go to the service. False if the client is to be left unread until the bell
  // rings.
  bool relayed(std::int64_t cost, std::int64_t opaque_frames);

  // Counts bytes that came from the service, of which so many have to wait for the client to read. False if
  // it has to be closed.
  bool brought(std::int64_t bytes, std::int64_t waiting);

  // Counts bytes that have waited, and that the client has taken.
  void read(std::int64_t bytes);

  bool is_to_be_cut() const;
  bool is_established() const;

  // Whether `establish` was called in vain since the last call.
  bool take_refusal();

  // Takes what is counted off the board, unless the service has let the client in; false then.
  bool dismiss();

  // Takes what is counted off the board.
  void end();

 private:
  std::int64_t kept() const;
  bool is_full() const;
  void unpause();  // with the lock held, as the next one
  void take_off();

  const AccountLimits limits_;
  const std::shared_ptr<Board> board_;
  std::atomic<Mechanism> mechanism_{Mechanism::kUnknown};
  mutable std::mutex mutex_;
  std::int64_t arriving_ = 0;
  std::int64_t held_ = 0;
  std::int64_t on_the_way_ = 0;  // of answers, from the service to the gate
  std::int64_t unread_ = 0;
  // Since the service has last taken a message: frames under CURVE, without those forgiven, and all of them.
  std::int64_t opaque_frames_ = 0;
  std::int64_t all_opaque_frames_ = 0;
  std::int64_t forgiven_until_ = 0;  // in seconds: when opaque frames were last forgiven
  bool paused_ = false;
  bool cut_ = false;
  bool established_ = false;
  bool refused_ = false;
  bool ended_ = false;
};

}  // namespace wavefront::gate

#endif
