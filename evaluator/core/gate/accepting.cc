// SPDX-License-Identifier: GPL-3.0-or-later
// Accepting of connections, and displacement of others for them.
#include "gate/gate.h"

#ifdef __linux__

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "gate/peer.h"

namespace wavefront::gate {

namespace {

using std::chrono::milliseconds;

// Connections accepted per round.
constexpr int kMostAccepted = 32;

// Descriptors left for the rest of the process, and those that the public door leaves for the local one.
constexpr std::size_t kHeadroom = 16;
constexpr std::size_t kLocalDescriptors = 48;

// Number of refusals after which accepting pauses: refused clients reconnect at once.
constexpr std::size_t kMostRefused = 32;
constexpr milliseconds kPause{100};

// Number of silent connections that may be displaced in a row; then one per kDisplacePace. The system's queue
// of 512 connections is then accepted within 0.5 s.
constexpr int kMostDisplacedAtOnce = 64;
constexpr std::chrono::microseconds kDisplacePace{1000};
constexpr milliseconds kDisplacePause{5};

}  // namespace

void Gate::accept_from(std::size_t index) {
  const Listener* listener = nullptr;
  {
    const std::lock_guard lock(mutex_);
    listener = &listeners_[index];  // A growing deque leaves its elements in place.
  }
  for (int i = 0; i < kMostAccepted && !is_paused(listener->door) && listener->socket; ++i) {
    Descriptor client(accept4(listener->socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (client) {
      admit(std::move(client), *listener);
    } else if (errno == EMFILE || errno == ENFILE) {
      if (!free_descriptors(listener->door)) refuse_without_descriptor(*listener);
    } else if (errno != EINTR && errno != ECONNABORTED) {
      return;
    }
  }
}

void Gate::admit(Descriptor client, const Listener& listener) {
  char byte;
  if (recv(client.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) return;  // It has left while it waited.
  const Door door = listener.door;
  std::string source = source_of_peer(client.get(), door == Door::kLocal);
  while (const auto displaced = admission_.displaced_by(door, source)) {
    dismiss(*displaced);
    if (door == Door::kPublic) pace_displacements();
  }
  Relay::Descriptors descriptors{std::move(client), {}, {}};
  while (!reserve(descriptors, door)) {
    if (!free_descriptors(door)) return refuse(descriptors.client, listener);
  }
  const int one = 1;
  setsockopt(descriptors.client.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);  // ipc has none
  const std::uint64_t number = next_number_++;
  auto link = std::make_shared<ByteAccount>(number, address_of_peer(descriptors.client.get()), door,
                                            limits_.link, board_);
  auto relay = std::make_unique<Relay>(epoll_.get(), std::move(descriptors), listener.upstream_path, link,
                                       source, listener.mechanism, limits_.frames);
  relay->start();
  relays_.emplace(number, std::move(relay));
  admission_.add(number, door, source);
  greetings_.push_back({Clock::now() + limits_.greeting, number});
  const std::lock_guard lock(mutex_);
  links_.emplace(number, std::move(link));
}

// Reserves the other descriptors of a connection; false if none would be left for others.
bool Gate::reserve(Relay::Descriptors& descriptors, Door door) const {
  const auto another = [this] { return Descriptor(fcntl(spare_.get(), F_DUPFD_CLOEXEC, 0)); };
  if (!descriptors.upstream)
    descriptors.upstream = Descriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!descriptors.reserved) descriptors.reserved = another();
  std::vector<Descriptor> room;
  const std::size_t others = door == Door::kPublic && has_local_ ? kLocalDescriptors : 0;
  for (std::size_t i = 0; i < kHeadroom + others + fresh_.size(); ++i) {
    room.push_back(another());
    if (!room.back()) return false;
  }
  return static_cast<bool>(descriptors.upstream) && static_cast<bool>(descriptors.reserved);
}

// Ends a connection to make room for one more at this door; false if there is none.
bool Gate::free_descriptors(Door door) {
  const auto dispensable = admission_.dispensable_for(door);
  if (dispensable) dismiss(*dispensable);
  farewells_.clear();
  return dispensable.has_value();
}

void Gate::refuse_without_descriptor(const Listener& listener) {
  spare_.close();
  refuse(Descriptor(accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC)), listener);
  spare_ = spare_descriptor();
}

void Gate::refuse(const Descriptor& client, const Listener& listener) {
  if (client) {
    send_refusal(client.get(), listener.mechanism, 0);
    note(address_of_peer(client.get()), Ending::kDescriptors);
  }
  if (++refused_[static_cast<std::size_t>(listener.door)] >= kMostRefused || !client)
    pause(listener.door, kPause);
}

// Connections at the public door wait in the system's queue while too many displace others. So each has at
// least kDisplacePace times the number of silent connections for a step of its handshake, and clients cannot
// reopen closed connections at once.
void Gate::pace_displacements() {
  const auto now = Clock::now();
  displace_at_ = std::max(displace_at_, now - kMostDisplacedAtOnce * kDisplacePace) + kDisplacePace;
  if (displace_at_ > now) pause(Door::kPublic, kDisplacePause);
}

void Gate::pause(Door door, milliseconds time) {
  refused_[static_cast<std::size_t>(door)] = 0;
  paused_[static_cast<std::size_t>(door)] = Clock::now() + time;
  watch_listeners();
}

void Gate::watch_listeners() {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < listeners_.size(); ++i) {
    const Listener& listener = listeners_[i];
    epoll_event event{.events = is_paused(listener.door) ? 0U : EPOLLIN, .data = {.u64 = i}};
    if (listener.socket) epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener.socket.get(), &event);
  }
}

}  // namespace wavefront::gate

#endif
