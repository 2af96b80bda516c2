// SPDX-License-Identifier: GPL-3.0-or-later
#include "zmtp/hub.h"

#ifdef __linux__

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "zmtp/refusal.h"
#include "zmtp/spin.h"

namespace wavefront::wire {

namespace {

using std::chrono::milliseconds;

constexpr std::size_t kScratch = 256 * 1024;

// Maximum connections accepted before others are served.
constexpr int kMostAccepted = 32;

// Without free descriptors, pause accepting: the listener stays readable and would be retried at once.
constexpr milliseconds kPause{100};

constexpr std::size_t kMostNews = 16;

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

std::string address_of_peer(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid == 0) return "";
  return "localhost:" + std::to_string(peer.uid) + ":" + std::to_string(peer.gid) + ":" +
         std::to_string(peer.pid);
}

// Sends the error "too many connections". greeted: bytes of our greeting already sent.
void send_refusal(int client, std::size_t greeted) {
  const std::string text = refusal("NULL", greeted);
  send(client, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

Hub::Hub(const MessageLimits& limits, std::size_t kept, std::size_t connections)
    : limits_(limits),
      kept_(kept),
      connections_(connections),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      scratch_(kScratch) {
  if (!epoll_) fail("epoll_create1");
}

void Hub::listen(Descriptor listener) {
  const int socket = listener.get();
  fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kListener}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket, &event) != 0) fail("epoll_ctl");
  listeners_.push_back(std::move(listener));
}

void Hub::stop_listening() {
  listeners_.clear();  // Closing them also removes them from the epoll set.
}

void Hub::watch(int descriptor) {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kWatched}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0) fail("epoll_ctl");
}

bool Hub::wait(int timeout_ms) {
  if (!arrived_.empty()) return false;
  std::array<epoll_event, 64> events;
  const int room = static_cast<int>(events.size());
  int count = 0;
  if (timeout_ms != 0 && may_spin()) {
    // Busy-wait only under load: a client that was just answered may send again.
    const auto spun = last_message_ + 2 * kSpin;
    while (count == 0 && Clock::now() < spun) count = epoll_wait(epoll_.get(), events.data(), room, 0);
  }
  if (count == 0) {
    count = epoll_wait(epoll_.get(), events.data(), room, timeout_until_listening(timeout_ms));
  }
  bool watched = false;
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    if (event.data.u64 == kWatched) {
      watched = true;
    } else if (event.data.u64 == kListener) {
      accept_all();
    } else {
      serve(event.data.u64, event.events);
    }
  }
  return watched;
}

std::optional<Arrived> Hub::take() {
  while (!arrived_.empty()) {
    Arrived arrived = std::move(arrived_.front());
    arrived_.pop_front();
    if (arrived.message.empty()) {
      ended_.push_back(arrived.number);
      continue;
    }
    // Disconnected clients may leave thousands of messages.
    if (!is_cut_off(arrived.number)) return arrived;
  }
  return std::nullopt;
}

const Arrived* Hub::next() {
  while (!arrived_.empty() && !arrived_.front().message.empty() && is_cut_off(arrived_.front().number)) {
    arrived_.pop_front();
  }
  return arrived_.empty() || arrived_.front().message.empty() ? nullptr : &arrived_.front();
}

std::vector<std::uint64_t> Hub::ended() {
  return std::exchange(ended_, {});
}

std::optional<std::string> Hub::address_of(std::uint64_t number) const {
  const auto found = client(number);
  return found ? std::optional(found->address) : std::nullopt;
}

bool Hub::send(std::uint64_t number, std::span<const Bytes> frames) {
  const auto found = client(number);
  if (!found) return false;
  const Sent sent = found->channel.send(frames);
  if (sent == Sent::kWaiting) watch_for_room(*found, true);
  return sent != Sent::kGone;
}

void Hub::hang_up(std::uint64_t number) {
  if (const auto found = client(number)) found->channel.hang_up();
}

std::size_t Hub::size() const {
  const std::lock_guard lock(mutex_);
  return clients_.size();
}

bool Hub::has_news() const {
  const std::lock_guard lock(mutex_);
  return !ended_.empty() || !news_.empty();
}

std::vector<Ended> Hub::news() {
  const std::lock_guard lock(mutex_);
  std::vector<Ended> told(news_.begin(), news_.end());
  news_.clear();
  return told;
}

void Hub::close(milliseconds linger) {
  stop_listening();
  const auto until = Clock::now() + linger;
  for (const auto& each : everybody()) {
    while (each->channel.flush() == Sent::kWaiting) {
      const auto left = std::chrono::ceil<milliseconds>(until - Clock::now()).count();
      if (left <= 0) break;
      pollfd room{each->channel.descriptor(), POLLOUT, 0};
      poll(&room, 1, static_cast<int>(left));
    }
  }
  const std::lock_guard lock(mutex_);
  clients_.clear();
}

bool Hub::is_cut_off(std::uint64_t number) const {
  const auto found = client(number);
  return found && found->channel.cut().has_value();
}

void Hub::accept_all() {
  for (const Descriptor& listener : listeners_) {
    for (int i = 0; i < kMostAccepted; ++i) {
      Descriptor socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) pause_listening();
        break;
      }
      if (size() < connections_ || make_room()) {
        admit(std::move(socket));
      } else {
        send_refusal(socket.get(), 0);
      }
    }
  }
}

// Ends the oldest connection without a message; returns false if all have sent one.
bool Hub::make_room() {
  std::shared_ptr<Client> oldest;
  for (auto& each : everybody())
    if (!each->has_spoken && (!oldest || each->number < oldest->number)) oldest = std::move(each);
  if (!oldest) return false;
  if (!oldest->channel.is_waiting()) send_refusal(oldest->channel.descriptor(), kGreetingBytes);
  end(oldest, Ending::kSilent);
  return true;
}

void Hub::admit(Descriptor socket) {
  const int descriptor = socket.get();
  const int at_once = 1;  // Fails on an ipc socket, which does not need it.
  setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
  const std::uint64_t number = next_number_++;
  auto made = std::shared_ptr<Client>(
      new Client{number, address_of_peer(descriptor), {std::move(socket), "ROUTER", limits_, kept_}});
  epoll_event event{.events = EPOLLIN, .data = {.u64 = number}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0) return;
  const std::lock_guard lock(mutex_);
  clients_.emplace(number, std::move(made));
}

void Hub::serve(std::uint64_t number, std::uint32_t events) {
  const auto found = client(number);
  if (!found) return;  // It ended earlier in this round.
  if ((events & EPOLLOUT) != 0 && found->channel.flush() != Sent::kWaiting) watch_for_room(*found, false);
  if ((events & ~static_cast<std::uint32_t>(EPOLLOUT)) == 0) return;
  const auto ending = found->channel.receive(scratch_);
  while (auto message = found->channel.take()) {
    found->has_spoken = true;
    arrived_.push_back({number, std::move(*message)});
    last_message_ = Clock::now();
  }
  if (ending) end(found, *ending);
}

void Hub::end(const std::shared_ptr<Client>& client, Ending reason) {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, client->channel.descriptor(), nullptr);
  client->channel.hang_up();
  arrived_.push_back({client->number, {}});
  const std::lock_guard lock(mutex_);
  clients_.erase(client->number);
  if (reason != Ending::kPeer && news_.size() < kMostNews) news_.push_back({client->address, reason});
}

void Hub::watch_for_room(Client& client, bool wanted) {
  const std::lock_guard lock(client.mutex);
  // Another thread may have queued or flushed bytes since.
  wanted = client.channel.is_waiting();
  if (wanted == client.is_watched) return;
  epoll_event event{.events = EPOLLIN, .data = {.u64 = client.number}};
  if (wanted) event.events |= EPOLLOUT;
  client.is_watched =
      epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, client.channel.descriptor(), &event) == 0 && wanted;
}

void Hub::pause_listening() {
  listening_ = false;
  listen_at_ = Clock::now() + kPause;
  for (const Descriptor& listener : listeners_)
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener.get(), nullptr);
}

// Returns the timeout, shortened to the end of a pause in accepting. Resumes accepting when the pause is
// over.
int Hub::timeout_until_listening(int timeout_ms) {
  if (listening_) return timeout_ms;
  const auto left = std::chrono::ceil<milliseconds>(listen_at_ - Clock::now()).count();
  if (left > 0) return timeout_ms < 0 ? static_cast<int>(left) : std::min(timeout_ms, static_cast<int>(left));
  listening_ = true;
  for (const Descriptor& listener : listeners_) {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = kListener}};
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener.get(), &event);
  }
  return timeout_ms;
}

std::shared_ptr<Hub::Client> Hub::client(std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  const auto found = clients_.find(number);
  return found == clients_.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<Hub::Client>> Hub::everybody() const {
  std::vector<std::shared_ptr<Client>> all;
  const std::lock_guard lock(mutex_);
  for (const auto& [number, each] : clients_) all.push_back(each);
  return all;
}

}  // namespace wavefront::wire

#endif
