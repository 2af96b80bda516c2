#include "gate/gate.h"

#ifdef __linux__

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <exception>
#include <random>
#include <system_error>
#include <utility>

#include "gate/peer.h"

namespace wavefront {

namespace {

using std::chrono::milliseconds;

constexpr std::size_t kScratch = 128 * 1024;

// The bell's number among the listeners'.
constexpr std::uint64_t kBell = 0xFFFF;

// Connections taken in before others are served.
constexpr int kMostAccepted = 32;

// Connections to the service that it has not greeted yet: a listening socket's queue is short.
constexpr std::size_t kMostFresh = 64;

// So many connections in a row are made to the service, and then one each time: each costs it some work,
// however soon it ends.
constexpr int kMostAtOnce = 64;
constexpr std::chrono::microseconds kPace{1000};

// Descriptors that are left to the rest of the process.
constexpr std::size_t kHeadroom = 16;

// After so many refusals no connection is taken for a while: who is refused comes again at once.
constexpr std::size_t kMostRefused = 32;
constexpr milliseconds kPause{100};

// How long a client may take to read its last answers.
constexpr milliseconds kLinger{5000};

constexpr std::size_t kMostNews = 16;

std::string random_name() {
  std::random_device device;
  std::string name(1, '\0');
  name += "wavefront-";
  for (int i = 0; i < 4; ++i) {
    char text[8];
    const auto end = std::to_chars(text, text + sizeof text, device(), 16).ptr;
    name.append(text, end);
  }
  return name + "-";
}

Descriptor nothing() {
  return Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

}  // namespace

Gate::Gate(const GateLimits& limits)
    : limits_(limits),
      name_(random_name()),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      scratch_(kScratch),
      spare_(nothing()) {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kBell}};
  if (!epoll_ || !spare_ || epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, board_->bell.descriptor(), &event) != 0)
    throw std::system_error(errno, std::generic_category(), "gate");
  thread_ = std::thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), "gate");
}

void Gate::listen(Descriptor listener, std::string upstream_path) {
  const std::lock_guard lock(mutex_);
  const int socket = listener.get();
  fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);  // accept must not keep the thread
  listeners_.push_back({std::move(listener), std::move(upstream_path)});
  epoll_event event{.events = EPOLLIN, .data = {.u64 = listeners_.size() - 1}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket, &event) != 0) {
    listeners_.pop_back();
    throw std::system_error(errno, std::generic_category(), "epoll_ctl");
  }
}

void Gate::stop_listening() {
  const std::lock_guard lock(mutex_);
  for (const Listener& listener : listeners_) {
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener.socket.get(), nullptr);
    shutdown(listener.socket.get(), SHUT_RDWR);  // and not closed: the thread may be about to accept
  }
}

std::shared_ptr<Link> Gate::link_of(int descriptor) const {
  const std::string name = name_of_peer(descriptor);
  if (!name.starts_with(name_)) return nullptr;
  std::uint64_t number = 0;
  std::from_chars(name.data() + name_.size(), name.data() + name.size(), number);
  const std::lock_guard lock(mutex_);
  const auto found = links_.find(number);
  return found == links_.end() ? nullptr : found->second;
}

std::size_t Gate::size() const {
  const std::lock_guard lock(mutex_);
  return links_.size();
}

std::array<std::uint64_t, kEndings> Gate::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

std::vector<Ended> Gate::news() {
  const std::lock_guard lock(mutex_);
  std::vector<Ended> told(news_.begin(), news_.end());
  news_.clear();
  return told;
}

void Gate::close(milliseconds linger) {
  if (!thread_.joinable()) return;
  stop_listening();
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    close_by_ = Clock::now() + linger;
  }
  board_->bell.ring(0);
  thread_.join();
  listeners_.clear();
}

void Gate::run() {
  while (true) {
    if (closes_ && (relays_.empty() || Clock::now() >= close_by_)) break;
    round(timeout_ms());
  }
  while (!relays_.empty()) end(relays_.begin()->first, Ending::kPeer);
}

void Gate::round(int timeout_ms) {
  std::array<epoll_event, 256> events;
  const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
  for (int i = 0; i < count; ++i) handle(events[static_cast<std::size_t>(i)].data.u64, events[i].events);
  expire();
  connect_waiting();
}

int Gate::timeout_ms() const {
  auto next = Clock::time_point::max();
  if (closes_) next = close_by_;
  if (!listening_) next = std::min(next, listen_at_);
  if (!greetings_.empty()) next = std::min(next, greetings_.front().at);
  if (!endings_.empty()) next = std::min(next, endings_.front().at);
  if (may_connect()) next = std::min(next, connect_at_);
  if (next == Clock::time_point::max()) return -1;
  const auto left = std::chrono::ceil<milliseconds>(next - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

void Gate::handle(std::uint64_t tag, std::uint32_t events) {
  if (tag == kBell) return answer_bell();
  const std::uint64_t number = tag / 2;
  try {
    if (tag < kFirstNumber) return accept_from(tag);
    const auto found = relays_.find(number);
    if (found == relays_.end()) return;  // It has ended in this round.
    Relay& relay = *found->second;
    const bool was_ending = relay.is_ending();
    const auto ending =
        tag % 2 == 0 ? relay.on_client(events, scratch_) : relay.on_upstream(events, scratch_);
    if (ending) return end(number, *ending);
    if (relay.wants_service() && !relay.is_queued()) waiting_.push_back(relay.queue());
    if (relay.is_greeted()) fresh_.erase(number);
    if (relay.is_ending() && !was_ending) endings_.push_back({Clock::now() + kLinger, number});
    relieve();
  } catch (const std::exception&) {  // memory: whoever it is about goes, all others stay
    if (relays_.contains(number)) end(number, Ending::kCrowded);
  }
}

void Gate::answer_bell() {
  for (const std::uint64_t number : board_->bell.answer()) {
    const auto found = relays_.find(number);
    if (found == relays_.end()) continue;
    if (found->second->link().is_to_be_cut()) {
      end(number, Ending::kAsked);
    } else {
      found->second->resume();
    }
  }
  const bool closing = [this] {
    const std::lock_guard lock(mutex_);
    return closing_;
  }();
  if (closing && !closes_) begin_to_close();
}

void Gate::begin_to_close() {
  closes_ = true;
  std::vector<std::uint64_t> idle;
  for (const auto& [number, relay] : relays_)
    if (!relay->is_connected()) idle.push_back(number);
  for (const std::uint64_t number : idle) end(number, Ending::kPeer);
}

void Gate::accept_from(std::size_t index) {
  int listener = -1;
  std::string upstream_path;
  {
    const std::lock_guard lock(mutex_);
    listener = listeners_[index].socket.get();
    upstream_path = listeners_[index].upstream_path;
  }
  for (int i = 0; i < kMostAccepted && listening_ && listener >= 0; ++i) {
    Descriptor client(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (client) {
      admit(std::move(client), upstream_path);
    } else if (errno == EMFILE || errno == ENFILE) {
      refuse_without_descriptor(listener);
    } else if (errno != EINTR && errno != ECONNABORTED) {
      return;
    }
  }
}

void Gate::admit(Descriptor client, const std::string& upstream_path) {
  char byte;
  if (recv(client.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) return;  // It has gone while it waited.
  if (relays_.size() >= limits_.connections) return refuse(client, Ending::kConnections);
  Relay::Descriptors descriptors{std::move(client), {}, {}};
  if (!reserve(descriptors)) return refuse(descriptors.client, Ending::kDescriptors);
  const int one = 1;
  setsockopt(descriptors.client.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);  // ipc has none
  const std::uint64_t number = next_number_++;
  auto link = std::make_shared<Link>(number, address_of_peer(descriptors.client.get()), limits_.link, board_);
  auto relay =
      std::make_unique<Relay>(epoll_.get(), std::move(descriptors), upstream_path, link, limits_.frames);
  relay->start();
  relays_.emplace(number, std::move(relay));
  greetings_.push_back({Clock::now() + limits_.greeting, number});
  const std::lock_guard lock(mutex_);
  links_.emplace(number, std::move(link));
}

// Takes the further descriptors that a connection needs; false if then there were none left for others.
bool Gate::reserve(Relay::Descriptors& descriptors) const {
  descriptors.upstream = Descriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const auto another = [this] { return Descriptor(fcntl(spare_.get(), F_DUPFD_CLOEXEC, 0)); };
  descriptors.reserved = another();
  std::vector<Descriptor> room;
  for (std::size_t i = 0; i < kHeadroom + fresh_.size(); ++i) {
    room.push_back(another());
    if (!room.back()) return false;
  }
  return static_cast<bool>(descriptors.upstream) && static_cast<bool>(descriptors.reserved);
}

void Gate::refuse_without_descriptor(int listener) {
  spare_.close();
  {
    const Descriptor client(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    refuse(client, Ending::kDescriptors);
  }
  spare_ = nothing();
}

void Gate::refuse(const Descriptor& client, Ending reason) {
  if (client) note(address_of_peer(client.get()), reason);
  if (++refused_ >= kMostRefused || !client) {
    refused_ = 0;
    watch_listeners(false);
  }
}

void Gate::watch_listeners(bool on) {
  listening_ = on;
  listen_at_ = Clock::now() + kPause;
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < listeners_.size(); ++i) {
    epoll_event event{.events = on ? EPOLLIN : 0U, .data = {.u64 = i}};
    if (listeners_[i].socket) epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listeners_[i].socket.get(), &event);
  }
}

bool Gate::may_connect() const {
  return !waiting_.empty() && fresh_.size() < kMostFresh;
}

void Gate::connect_waiting() {
  const auto now = Clock::now();
  while (may_connect() && connect_at_ <= now) {
    connect_at_ = std::max(connect_at_, now - kMostAtOnce * kPace) + kPace;
    const std::uint64_t number = waiting_.front();
    waiting_.pop_front();
    const auto found = relays_.find(number);
    if (found == relays_.end()) continue;
    if (found->second->connect(name_ + std::to_string(number))) {
      fresh_.insert(number);
    } else {
      end(number, Ending::kDescriptors);
    }
  }
}

void Gate::relieve() {
  while (board_->buffered > limits_.buffered && !relays_.empty()) {
    const auto kept = [](const auto& entry) {
      const Link& link = entry.second->link();
      return link.arriving() + link.unread();
    };
    const auto most = std::max_element(relays_.begin(), relays_.end(),
                                       [&](const auto& a, const auto& b) { return kept(a) < kept(b); });
    if (kept(*most) == 0) return;
    end(most->first, Ending::kCrowded);
  }
}

void Gate::expire() {
  const auto now = Clock::now();
  const auto is_due = [now](const std::deque<Deadline>& deadlines) {
    return !deadlines.empty() && deadlines.front().at <= now;
  };
  while (is_due(greetings_)) {
    const std::uint64_t number = greetings_.front().number;
    greetings_.pop_front();
    const auto found = relays_.find(number);
    if (found != relays_.end() && !found->second->is_connected()) end(number, Ending::kLate);
  }
  while (is_due(endings_)) {
    const std::uint64_t number = endings_.front().number;
    endings_.pop_front();
    if (relays_.contains(number)) end(number, Ending::kPeer);
  }
  if (!listening_ && listen_at_ <= now) {
    if (!spare_) spare_ = nothing();
    watch_listeners(true);
  }
}

void Gate::end(std::uint64_t number, Ending reason) {
  const auto found = relays_.find(number);
  found->second->link().end();
  note(found->second->link().address, reason);
  fresh_.erase(number);
  relays_.erase(found);
  const std::lock_guard lock(mutex_);
  links_.erase(number);
}

void Gate::note(std::string address, Ending reason) {
  const std::lock_guard lock(mutex_);
  ++counts_[static_cast<std::size_t>(reason)];
  if (reason != Ending::kPeer && news_.size() < kMostNews) news_.push_back({std::move(address), reason});
}

}  // namespace wavefront

#endif
