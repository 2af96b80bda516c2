// SPDX-License-Identifier: GPL-3.0-or-later
#include "gate/relay.h"

#ifdef __linux__

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <system_error>
#include <utility>

#include "zmtp/refusal.h"

namespace wavefront::gate {

namespace {

// Bytes accepted by a socket; 0 if it is full, -1 if it is broken.
ssize_t send_some(int descriptor, std::span<const unsigned char> bytes) {
  const ssize_t sent = send(descriptor, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0) return sent;
  return errno == EAGAIN || errno == EINTR ? 0 : -1;
}

struct Received {
  std::size_t size;
  bool ended;
};

Received receive_some(int descriptor, std::span<unsigned char> scratch) {
  const ssize_t size = recv(descriptor, scratch.data(), scratch.size(), MSG_DONTWAIT);
  if (size > 0) return {static_cast<std::size_t>(size), false};
  return {0, size == 0 || (errno != EAGAIN && errno != EINTR)};
}

// Fills in an address and returns its size. Paths with a leading zero byte are abstract.
socklen_t address_of(const std::string& path, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  const std::size_t size = std::min(path.size(), sizeof address.sun_path);
  std::memcpy(address.sun_path, path.data(), size);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + size + (path[0] != 0));
}

}  // namespace

void send_refusal(int client, Mechanism mechanism, std::size_t greeted) {
  const std::string text = refusal(mechanism == Mechanism::kCurve ? "CURVE" : "NULL", greeted);
  send_some(client, std::span(reinterpret_cast<const unsigned char*>(text.data()), text.size()));
  shutdown(client, SHUT_WR);
}

Relay::Relay(int epoll, Descriptors descriptors, std::string upstream_path, std::shared_ptr<ByteAccount> link,
             std::string source, Mechanism mechanism, const MessageLimits& limits)
    : epoll_(epoll),
      descriptors_(std::move(descriptors)),
      upstream_path_(std::move(upstream_path)),
      link_(std::move(link)),
      source_(std::move(source)),
      mechanism_(mechanism),
      reader_(limits) {}

void Relay::start() {
  client_events_ = EPOLLIN;
  epoll_event event{.events = client_events_, .data = {.u64 = 2 * link_->number}};
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptors_.client.get(), &event) != 0)
    throw std::system_error(errno, std::generic_category(), "epoll_ctl");
}

std::optional<Ending> Relay::on_client(std::uint32_t events, std::span<unsigned char> scratch) {
  std::optional<Ending> ending;
  if ((events & EPOLLOUT) != 0) ending = write_client();
  if (ending) return ending;
  // While reading, the end of the connection is detected after all sent data.
  if (reads_client()) {
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) ending = read_client(scratch);
  } else if ((events & (EPOLLHUP | EPOLLERR)) != 0) {
    return Ending::kPeer;
  }
  watch();
  return ending;
}

std::optional<Ending> Relay::on_upstream(std::uint32_t events, std::span<unsigned char> scratch) {
  if (!descriptors_.upstream) return std::nullopt;
  if ((events & EPOLLOUT) != 0) write_upstream();
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
    const Received received = receive_some(descriptors_.upstream.get(), scratch);
    if (received.ended) {
      if (outward_.empty()) return Ending::kPeer;
      state_ = State::kEnding;
      descriptors_.upstream.close();
    } else if (received.size > 0) {
      greeted_ = true;
      handshake_.read(scratch.data(), received.size);
      if (const auto ending = deliver(scratch.first(received.size))) return ending;
    }
  }
  watch();
  return std::nullopt;
}

Descriptor Relay::dismiss() {
  epoll_ctl(epoll_, EPOLL_CTL_DEL, descriptors_.client.get(), nullptr);
  if (outward_.empty() && handshake_.is_between_frames())
    send_refusal(descriptors_.client.get(), mechanism_, handshake_.greeting_bytes());
  return std::move(descriptors_.client);
}

void Relay::resume() {
  paused_ = false;
  watch();
}

bool Relay::connect(const std::string& own_name) {
  sockaddr_un own;
  sockaddr_un service;
  const socklen_t own_size = address_of(own_name, own);
  const socklen_t service_size = address_of(upstream_path_, service);
  const int upstream = descriptors_.upstream.get();
  if (bind(upstream, reinterpret_cast<sockaddr*>(&own), own_size) != 0) return false;
  descriptors_.reserved.close();
  if (::connect(upstream, reinterpret_cast<sockaddr*>(&service), service_size) != 0) return false;
  upstream_events_ = EPOLLIN;
  epoll_event event{.events = upstream_events_, .data = {.u64 = 2 * link_->number + 1}};
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, upstream, &event) != 0) return false;
  state_ = State::kOpen;
  write_upstream();
  watch();
  return true;
}

std::optional<Ending> Relay::read_client(std::span<unsigned char> scratch) {
  const Received received = receive_some(descriptors_.client.get(), scratch);
  if (received.ended) return Ending::kPeer;
  const auto bytes = std::span<const unsigned char>(scratch.first(received.size));
  if (const auto ending = reader_.read(bytes.data(), bytes.size())) return ending;
  if (link_->mechanism() == Mechanism::kUnknown) link_->speaks(reader_.mechanism());
  paused_ = !link_->relayed(reader_.take_cost(), reader_.take_opaque_frames());
  if (state_ == State::kOpen) return send_upstream(bytes) ? std::nullopt : std::optional(Ending::kPeer);
  if (!inward_.append(bytes.data(), bytes.size())) return Ending::kCrowded;
  if (reader_.has_signature()) state_ = State::kWaiting;
  return std::nullopt;
}

std::optional<Ending> Relay::write_client() {
  while (!outward_.empty()) {
    const ssize_t sent = send_some(descriptors_.client.get(), outward_.front());
    if (sent < 0) return Ending::kPeer;
    if (sent == 0) return std::nullopt;
    outward_.pop(static_cast<std::size_t>(sent));
    link_->read(sent);
  }
  return state_ == State::kEnding ? std::optional(Ending::kPeer) : std::nullopt;
}

std::optional<Ending> Relay::deliver(std::span<const unsigned char> bytes) {
  const auto brought = static_cast<std::int64_t>(bytes.size());
  if (outward_.empty()) {
    const ssize_t sent = send_some(descriptors_.client.get(), bytes);
    if (sent < 0) return Ending::kPeer;
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
  if (!outward_.append(bytes.data(), bytes.size())) return Ending::kCrowded;
  const bool bearable = link_->brought(brought, static_cast<std::int64_t>(bytes.size()));
  return bearable ? std::nullopt : std::optional(Ending::kUnread);
}

bool Relay::send_upstream(std::span<const unsigned char> bytes) {
  if (inward_.empty()) {
    const ssize_t sent = send_some(descriptors_.upstream.get(), bytes);
    if (sent < 0) return true;  // The service has disconnected; forward its remaining data first.
    bytes = bytes.subspan(static_cast<std::size_t>(sent));
  }
  return inward_.append(bytes.data(), bytes.size());
}

bool Relay::write_upstream() {
  while (!inward_.empty()) {
    const ssize_t sent = send_some(descriptors_.upstream.get(), inward_.front());
    if (sent <= 0) return sent == 0;
    inward_.pop(static_cast<std::size_t>(sent));
  }
  return true;
}

bool Relay::reads_client() const {
  if (state_ == State::kSigning) return true;
  return state_ == State::kOpen && !paused_ && inward_.empty();
}

void Relay::watch() {
  const auto change = [&](int descriptor, std::uint64_t data, std::uint32_t& known, std::uint32_t wanted) {
    if (descriptor < 0 || known == wanted) return;
    epoll_event event{.events = wanted, .data = {.u64 = data}};
    if (epoll_ctl(epoll_, EPOLL_CTL_MOD, descriptor, &event) == 0) known = wanted;
  };
  const auto flag = [](bool condition, std::uint32_t event) { return condition ? event : 0U; };
  change(descriptors_.client.get(), 2 * link_->number, client_events_,
         flag(reads_client(), EPOLLIN) | flag(!outward_.empty(), EPOLLOUT));
  if (is_connected()) {
    change(descriptors_.upstream.get(), 2 * link_->number + 1, upstream_events_,
           EPOLLIN | flag(!inward_.empty(), EPOLLOUT));
  }
}

}  // namespace wavefront::gate

#endif
