// SPDX-License-Identifier: GPL-3.0-or-later
#include "zmtp/hub.h"

#ifdef __linux__

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "zmtp/peer.h"
#include "zmtp/refusal.h"
#include "zmtp/spin.h"

namespace wavefront::wire {

namespace {

using std::chrono::milliseconds;

constexpr std::size_t kScratch = 64 * 1024;

// Maximum connections accepted before others are served.
constexpr int kMostAccepted = 32;

// Without free descriptors, pause accepting: the listener stays readable and would be retried at once.
constexpr milliseconds kPause{100};

// Descriptors left for the rest of the process, and those that other addresses leave for local ones.
constexpr std::size_t kHeadroom = 16, kLocalHeadroom = 48;

constexpr std::size_t kMostEndings = 16;

// A tcp peer that does not answer for this time has vanished.
constexpr int kProbeAfterS = 2, kProbeEveryS = 1, kProbes = 3;
constexpr unsigned kUnansweredMs = 5000;

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

// Sends the error "too many connections". greeted: bytes of our greeting already sent.
void send_refusal(int client, std::size_t greeted) {
  const std::string text = refusal(greeted);
  send(client, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

template <typename T>
void set(int socket, int level, int option, T value) {
  setsockopt(socket, level, option, &value, sizeof value);  // fails on an ipc socket, which needs none
}

}  // namespace

Hub::Hub(const HubLimits& limits)
    : limits_(limits),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      scratch_(kScratch),
      transports_{Transport{SilentConnections(limits.per_source)},
                  Transport{SilentConnections(std::numeric_limits<std::size_t>::max())}} {
  if (!epoll_) fail("epoll_create1");
}

void Hub::listen(Descriptor listener, bool local) {
  const int socket = listener.get();
  fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kListener}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket, &event) != 0) fail("epoll_ctl");
  listeners_.push_back({std::move(listener), local});
}

void Hub::stop_listening() {
  listeners_.clear();  // Closing them also removes them from the epoll set.
}

void Hub::watch(int descriptor) {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kWatched}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0) fail("epoll_ctl");
}

bool Hub::wait(int timeout_ms) {
  if (has_message()) timeout_ms = 0;
  std::array<epoll_event, 64> events;
  const int room = static_cast<int>(events.size());
  int count = 0;
  if (timeout_ms != 0 && may_spin()) {
    // Busy-wait only under load: a client that was just answered may send again.
    const auto spun = last_message_ + 2 * kSpin;
    while (count == 0 && Clock::now() < spun) count = epoll_wait(epoll_.get(), events.data(), room, 0);
  }
  if (count == 0) count = epoll_wait(epoll_.get(), events.data(), room, timeout(timeout_ms));
  bool watched = false;
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    if (event.data.u64 == kWatched) {
      watched = true;
    } else if (event.data.u64 == kListener) {
      for (const Listener& listener : listeners_) accept_from(listener);
    } else {
      serve(event.data.u64, event.events);
    }
  }
  expire();
  relieve();
  return watched;
}

std::optional<Arrived> Hub::take() {
  while (!turns_.empty()) {
    const std::shared_ptr<Client> client = std::move(turns_.front());
    turns_.pop_front();
    // Disconnected clients may leave thousands of messages.
    auto message = client->channel.cut() ? std::nullopt : client->channel.take();
    client->has_turn = message && client->channel.has_message();
    if (client->has_turn) {
      turns_.push_back(client);
    } else if (client->has_ended) {
      ended_.push_back(client->number);
    } else if (client->is_paused) {
      client->is_paused = false;
      watch(*client);
    }
    if (message) return Arrived{client->number, std::move(*message)};
  }
  return std::nullopt;
}

std::optional<Waiting> Hub::next() {
  if (turns_.empty()) return std::nullopt;
  const Client& client = *turns_.front();
  if (client.channel.cut() || !client.channel.has_message()) return std::nullopt;
  return Waiting{client.number, client.channel.next()};
}

std::vector<std::uint64_t> Hub::ended() {
  return std::exchange(ended_, {});
}

std::optional<std::string> Hub::address_of(std::uint64_t number) const {
  const auto found = client(number);
  return found ? std::optional(found->address) : std::nullopt;
}

bool Hub::is_local(std::uint64_t number) const {
  const auto found = client(number);
  return found && found->local;
}

std::size_t Hub::unread(std::uint64_t number) const {
  const auto found = client(number);
  return found ? found->channel.unread() : 0;
}

bool Hub::send(std::uint64_t number, std::span<const Bytes> frames) {
  const auto found = client(number);
  if (!found) return false;
  const Sent sent = found->channel.send(frames);
  if (sent == Sent::kWaiting) watch(*found);
  return sent != Sent::kGone;
}

void Hub::hang_up(std::uint64_t number) {
  if (const auto found = client(number)) found->channel.hang_up();
}

std::size_t Hub::size() const {
  const std::lock_guard lock(mutex_);
  return clients_.size();
}

bool Hub::has_events() const {
  const std::lock_guard lock(mutex_);
  return !ended_.empty() || !endings_.empty();
}

std::vector<Ended> Hub::endings() {
  const std::lock_guard lock(mutex_);
  std::vector<Ended> recent(endings_.begin(), endings_.end());
  endings_.clear();
  return recent;
}

std::array<std::uint64_t, kEndings> Hub::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
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

void Hub::accept_from(const Listener& listener) {
  for (int i = 0; i < kMostAccepted && !listen_at_; ++i) {
    Descriptor socket(accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) pause_listening();
      return;
    }
    const std::string source = source_of_peer(socket.get(), listener.local);
    const auto has_room = [&] { return has_descriptors(socket.get(), listener); };
    if (!has_room() && !(displace(transport(false).silent.victim()) && has_room())) {
      refuse(socket, Ending::kDescriptors);
      pause_listening();
    } else if (make_room(listener.local, source)) {
      admit(std::move(socket), listener, source);
    } else {
      refuse(socket, Ending::kConnections);
    }
  }
}

// Returns true if enough descriptors are left. accepted: the newest, which was the lowest that was free.
bool Hub::has_descriptors(int accepted, const Listener& listener) const {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && static_cast<rlim_t>(accepted) < limit.rlim_cur / 2)
    return true;
  const bool has_local =
      std::any_of(listeners_.begin(), listeners_.end(), [](const Listener& each) { return each.local; });
  std::vector<Descriptor> room;
  for (std::size_t i = 0; i < kHeadroom + (has_local && !listener.local ? kLocalHeadroom : 0); ++i) {
    room.emplace_back(fcntl(epoll_.get(), F_DUPFD_CLOEXEC, 0));
    if (!room.back()) return false;
  }
  return true;
}

// Makes room for a connection of a source; returns false if all others have sent a message.
bool Hub::make_room(bool local, const std::string& source) {
  const Transport& own = transport(local);
  if (const auto displaced = own.silent.displaced_by(source)) return displace(displaced);
  return own.connections < limits_.connections || displace(own.silent.victim());
}

bool Hub::displace(std::optional<std::uint64_t> number) {
  const auto found = number ? client(*number) : nullptr;
  if (!found) return false;
  if (!found->channel.is_waiting()) send_refusal(found->channel.descriptor(), kGreetingBytes);
  end(found, Ending::kSilent);
  return true;
}

void Hub::admit(Descriptor socket, const Listener& listener, const std::string& source) {
  const int descriptor = socket.get();
  set(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  set(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, kProbeAfterS);
  set(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, kProbeEveryS);
  set(descriptor, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  set(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, kUnansweredMs);
  const std::uint64_t number = next_number_++;
  auto made = std::shared_ptr<Client>(
      new Client{number,
                 address_of_peer(descriptor),
                 listener.local,
                 {std::move(socket), "ROUTER", limits_.messages, limits_.kept, buffered_}});
  made->watched = EPOLLIN;
  epoll_event event{.events = EPOLLIN, .data = {.u64 = number}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0) return;
  transport(listener.local).silent.add(number, source);
  ++transport(listener.local).connections;
  handshakes_.push_back({Clock::now() + limits_.handshake, number});
  const std::lock_guard lock(mutex_);
  clients_.emplace(number, std::move(made));
}

void Hub::refuse(const Descriptor& socket, Ending reason) {
  send_refusal(socket.get(), 0);
  note(address_of_peer(socket.get()), reason);
}

void Hub::serve(std::uint64_t number, std::uint32_t events) {
  const auto found = client(number);
  if (!found) return;  // It ended earlier in this round.
  Channel& channel = found->channel;
  if ((events & EPOLLOUT) != 0 && channel.flush() != Sent::kWaiting) watch(*found);
  if ((events & ~static_cast<std::uint32_t>(EPOLLOUT)) == 0) return;
  if (channel.has_message() && !channel.cut()) {
    // Its earlier messages are taken first, even if the connection has ended.
    if (found->is_paused) return;
    found->is_paused = true;
    return watch(*found);
  }
  const auto ending = channel.receive(scratch_);
  if (channel.has_message()) {
    transport(found->local).silent.remove(number);
    if (!std::exchange(found->has_turn, true)) turns_.push_back(found);
    last_message_ = Clock::now();
  }
  if (ending) end(found, *ending);
}

void Hub::end(const std::shared_ptr<Client>& client, Ending reason) {
  if (reason != Ending::kPeer) note(client->address, reason);
  client->has_ended = true;
  transport(client->local).silent.remove(client->number);
  --transport(client->local).connections;
  if (!std::exchange(client->has_turn, true)) turns_.push_back(client);
  {
    const std::lock_guard lock(mutex_);
    clients_.erase(client->number);
  }
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, client->channel.descriptor(), nullptr);
  client->channel.close();
}

void Hub::note(const std::string& address, Ending reason) {
  const std::lock_guard lock(mutex_);
  ++counts_[static_cast<std::size_t>(reason)];
  if (endings_.size() < kMostEndings) endings_.push_back({address, reason});
}

// Lets epoll report what the connection waits for.
void Hub::watch(Client& client) {
  const std::lock_guard lock(client.mutex);
  // Another thread may have queued or flushed bytes since.
  const std::uint32_t wanted =
      (client.is_paused ? 0U : EPOLLIN) | (client.channel.is_waiting() ? EPOLLOUT : 0U);
  if (wanted == client.watched) return;
  epoll_event event{.events = wanted, .data = {.u64 = client.number}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, client.channel.descriptor(), &event) == 0)
    client.watched = wanted;
}

// While all connections keep too many bytes, ends the one with the most.
void Hub::relieve() {
  while (*buffered_ > limits_.buffered) {
    std::shared_ptr<Client> most;
    std::size_t bytes = 0;
    for (auto& each : everybody()) {
      const std::size_t its = each->channel.bytes();
      if (its >= bytes) {
        bytes = its;
        most = std::move(each);
      }
    }
    if (!most) return;
    end(most, Ending::kCrowded);
    most->channel.drop(Ending::kCrowded);
  }
}

// Ends the connections whose handshake has taken too long.
void Hub::expire() {
  const auto now = Clock::now();
  while (!handshakes_.empty() && handshakes_.front().at <= now) {
    const auto found = client(handshakes_.front().number);
    handshakes_.pop_front();
    if (found && !found->channel.is_ready()) end(found, Ending::kLate);
  }
  if (!listen_at_ || *listen_at_ > now) return;
  listen_at_.reset();
  for (const Listener& listener : listeners_) {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = kListener}};
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener.socket.get(), &event);
  }
}

void Hub::pause_listening() {
  listen_at_ = Clock::now() + kPause;
  for (const Listener& listener : listeners_)
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener.socket.get(), nullptr);
}

// Returns the timeout, shortened to the next deadline.
int Hub::timeout(int timeout_ms) {
  auto next = listen_at_.value_or(Clock::time_point::max());
  if (!handshakes_.empty()) next = std::min(next, handshakes_.front().at);
  if (next == Clock::time_point::max()) return timeout_ms;
  const auto left = std::chrono::ceil<milliseconds>(next - Clock::now()).count();
  const int most = static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
  return timeout_ms < 0 ? most : std::min(timeout_ms, most);
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
