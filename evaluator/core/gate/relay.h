// SPDX-License-Identifier: GPL-3.0-or-later
// One client's connection to the gate and the gate's to the service, and the bytes between them.
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
// service's greeting that it has had.
void send_refusal(int client, Mechanism mechanism, std::size_t greeted);

// Belongs to the gate's thread. The number of its link names it in the data of epoll's events: twice the
// number for events of the client, one more for those of the service.
class Relay {
 public:
  // Descriptors that a connection will need are taken at once: the client's; one towards the service; and one
  // that is closed when the service needs it for its own end.
  struct Descriptors {
    Descriptor client;
    Descriptor upstream;
    Descriptor reserved;
  };

  Relay(int epoll, Descriptors descriptors, std::string upstream_path, std::shared_ptr<ByteAccount> link,
        std::string source, Mechanism mechanism, const MessageLimits& limits);

  // Begins to listen to the client. Throws std::system_error.
  void start();

  // Handle events of epoll; the reason why the connection has to end, if there is one. scratch: memory to
  // read to.
  std::optional<Ending> on_client(std::uint32_t events, std::span<unsigned char> scratch);
  std::optional<Ending> on_upstream(std::uint32_t events, std::span<unsigned char> scratch);

  // Tells the client that there are too many connections, as far as there is room for that. Returns its
  // descriptor; nothing else may be asked of the relay then.
  Descriptor dismiss();

  // Goes on reading from the client, as the service has taken what it had sent.
  void resume();

  // Whether the client has shown that it speaks ZeroMQ, and waits to be connected to the service.
  bool wants_service() const { return state_ == State::kWaiting; }

  // Notes that it stands in the queue for that; returns its number.
  std::uint64_t queue() {
    queued_ = true;
    return link_->number;
  }
  bool is_queued() const { return queued_; }

  // Connects to the service, as a socket of this name in the abstract name space; false if that cannot be.
  bool connect(const std::string& own_name);

  // Whether it is connected, and has heard of the service.
  bool is_connected() const { return state_ == State::kOpen || state_ == State::kEnding; }
  bool is_greeted() const { return greeted_; }

  // Whether the service has hung up, and only answers are left that the client has to read.
  bool is_ending() const { return state_ == State::kEnding; }

  // Steps of the handshake that the client has taken (FrameReader), and whether it has shown a key that is
  // let in.
  std::size_t steps() const { return reader_.steps(); }
  bool is_proven() const { return mechanism_ == Mechanism::kCurve && handshake_.is_ready(); }

  // Where the client comes from (source_of_peer).
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
  std::uint32_t client_events_ = 0;  // that epoll watches for
  std::uint32_t upstream_events_ = 0;
  BlockQueue inward_;   // read from the client, and not yet taken by the socket to the service
  BlockQueue outward_;  // the other way
};

}  // namespace wavefront::gate

#endif
