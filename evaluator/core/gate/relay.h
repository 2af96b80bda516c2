// SPDX-License-Identifier: GPL-3.0-or-later
// A client's connection to the gate, the gate's connection to the service, and the bytes between them.
#pragma once

#ifdef __linux__

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "gate/blocks.h"
#include "gate/byte_account.h"
#include "gate/zmtp.h"
#include "zmtp/descriptor.h"
#include "zmtp/ending.h"

namespace wavefront::gate {

// Tells a client that there are too many connections. mechanism: the service's. greeted: bytes of the
// service's greeting that the client has received.
void send_refusal(int client, Mechanism mechanism, std::size_t greeted);

// Belongs to the gate's thread. In the data of epoll's events, twice its link's number stands for the client,
// and one more for the service.
class Relay {
 public:
  // All descriptors that a connection will need, reserved together: the client's; one towards the service;
  // and one that is closed when the service needs one for its own end.
  struct Descriptors {
    Descriptor client;
    Descriptor upstream;
    Descriptor reserved;
  };

  Relay(int epoll, Descriptors descriptors, std::string upstream_path, std::shared_ptr<ByteAccount> link,
        std::string source, Mechanism mechanism, const MessageLimits& limits);

  // Starts watching the client. Throws std::system_error.
  void start();

  // Handle events of epoll. Return the reason if the connection must end. scratch: memory for reading.
  std::optional<Ending> on_client(std::uint32_t events, std::span<unsigned char> scratch);
  std::optional<Ending> on_upstream(std::uint32_t events, std::span<unsigned char> scratch);

  // Tells the client that there are too many connections, as far as there is room. Returns its descriptor;
  // the relay must not be used after that.
  Descriptor dismiss();

  // Resumes reading from the client, after the service has taken its data.
  void resume();

  // True if the client has sent ZeroMQ's greeting, and waits for a connection to the service.
  bool wants_service() const { return state_ == State::kWaiting; }

  // Notes that it is queued for that; returns its number.
  std::uint64_t queue() {
    queued_ = true;
    return link_->number;
  }
  bool is_queued() const { return queued_; }

  // Connects to the service from an abstract socket of this name; false on failure.
  bool connect(const std::string& own_name);

  // Whether it is connected, and whether it has received the service's greeting.
  bool is_connected() const { return state_ == State::kOpen || state_ == State::kEnding; }
  bool is_greeted() const { return greeted_; }

  // True if the service has disconnected, and only unread answers are left.
  bool is_ending() const { return state_ == State::kEnding; }

  // Steps of the handshake that the client has completed (FrameReader), and whether it has shown an allowed
  // key.
  std::size_t steps() const { return reader_.steps(); }
  bool is_proven() const { return mechanism_ == Mechanism::kCurve && handshake_.is_ready(); }

  // The client's source (source_of_peer).
  const std::string& source() const { return source_; }

  ByteAccount& link() const { return *link_; }

 private:
  enum class State { kSigning, kWaiting, kOpen, kEnding };

  std::optional<Ending> read_client(std::span<unsigned char> scratch);
  std::optional<Ending> write_client();
  std::optional<Ending> deliver(std::span<const unsigned char> bytes);
  bool send_upstream(std::span<const unsigned char> bytes);
  bool write_upstream();
  bool reads_client() const;
  void watch();

  const int epoll_;
  Descriptors descriptors_;
  const std::string upstream_path_;
  const std::shared_ptr<ByteAccount> link_;
  const std::string source_;
  const Mechanism mechanism_;  // of the service
  FrameReader reader_;
  HandshakeReader handshake_;
  State state_ = State::kSigning;
  bool queued_ = false;
  bool greeted_ = false;
  bool paused_ = false;
  std::uint32_t client_events_ = 0;  // watched by epoll
  std::uint32_t upstream_events_ = 0;
  BlockQueue inward_;   // read from the client, not yet accepted by the socket to the service
  BlockQueue outward_;  // the other direction
};

}  // namespace wavefront::gate

#endif
