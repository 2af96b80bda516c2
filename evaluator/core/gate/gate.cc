// SPDX-License-Identifier: GPL-3.0-or-later
#include "gate/gate.h"

#ifdef __linux__

#include <fcntl.h>
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

namespace wavefront::gate {

namespace {

using std::chrono::milliseconds;

constexpr std::size_t kScratch = 128 * 1024;

// The bell's number, in the range of the listeners'.
constexpr std::uint64_t kBell = 0xFFFF;

// Maximum connections without the service's greeting: a listening socket's queue is short.
constexpr std::size_t kMostFresh = 64;

// Connections to the service in a row; then one per kPace. Each costs the service some work, however soon it
// ends.
constexpr int kMostAtOnce = 64;
constexpr std::chrono::microseconds kPace{500};

// Time limit for a client to read its last answers.
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

}  // namespace

Descriptor Gate::spare_descriptor() {
  return Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

Gate::Gate(const GateLimits& limits)
    : limits_(limits),
      name_(random_name()),
      board_(std::make_shared<Board>(limits.connections)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      scratch_(kScratch),
      spare_(spare_descriptor()),
      admission_(limits.connections, board_->roll) {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kBell}};
  if (!epoll_ || !spare_ || epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, board_->bell.descriptor(), &event) != 0)
    throw std::system_error(errno, std::generic_category(), "gate");
  thread_ = std::thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), "gate");
}

void Gate::listen(Descriptor listener, std::string upstream_path, Door door, Mechanism mechanism) {
  const std::lock_guard lock(mutex_);
  const int socket = listener.get();
  fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);  // accept must not block the thread
  listeners_.push_back({std::move(listener), std::move(upstream_path), door, mechanism});
  if (door == Door::kLocal) has_local_ = true;
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
    shutdown(listener.socket.get(), SHUT_RDWR);  // not close: the thread may be about to accept
  }
}

std::shared_ptr<ByteAccount> Gate::link_of(int descriptor) const {
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
  for (const auto& until : paused_)
    if (until) next = std::min(next, *until);
  if (const auto farewell = farewells_.next()) next = std::min(next, *farewell);
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
    const std::size_t steps = relay.steps();
    const auto ending =
        tag % 2 == 0 ? relay.on_client(events, scratch_) : relay.on_upstream(events, scratch_);
    if (ending) return end(number, *ending);
    follow(number, relay, steps);
    if (relay.is_ending() && !was_ending) endings_.push_back({Clock::now() + kLinger, number});
    relieve();
  } catch (const std::exception&) {  // out of memory: only the affected client is disconnected
    if (relays_.contains(number)) end(number, Ending::kCrowded);
  }
}

// Notes a connection's progress. steps: of its handshake before.
void Gate::follow(std::uint64_t number, Relay& relay, std::size_t steps) {
  if (relay.wants_service() && !relay.is_queued()) waiting_.push(relay.source(), relay.queue());
  if (relay.is_greeted() && fresh_.erase(number) != 0) admission_.touch(number);
  if (relay.steps() != steps) admission_.touch(number);
  if (relay.is_proven()) admission_.prove(number);
}

void Gate::answer_bell() {
  for (const std::uint64_t number : board_->bell.answer()) {
    const auto found = relays_.find(number);
    if (found == relays_.end()) continue;
    ByteAccount& link = found->second->link();
    if (link.is_to_be_cut()) {
      end(number, Ending::kAsked);
      continue;
    }
    if (link.is_established()) admission_.remove(number);
    if (link.take_refusal()) {
      note(link.address, Ending::kConnections);
      endings_.push_back({Clock::now() + kLinger, number});
    }
    found->second->resume();
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

bool Gate::may_connect() const {
  return !waiting_.empty() && fresh_.size() < kMostFresh;
}

void Gate::connect_waiting() {
  const auto now = Clock::now();
  while (may_connect() && connect_at_ <= now) {
    connect_at_ = std::max(connect_at_, now - kMostAtOnce * kPace) + kPace;
    const std::uint64_t number = waiting_.pop();
    const auto found = relays_.find(number);
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
      const ByteAccount& link = entry.second->link();
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
    const auto found = relays_.find(number);
    if (found == relays_.end()) continue;
    // A refused one may have been admitted in the meantime.
    if (found->second->is_ending() || !found->second->link().is_established()) end(number, Ending::kPeer);
  }
  farewells_.expire(now);
  for (auto& until : paused_) {
    if (!until || *until > now) continue;
    if (!spare_) spare_ = spare_descriptor();
    until.reset();
    watch_listeners();
  }
}

// Ends a connection that the service has not admitted; false if it has just been admitted.
bool Gate::dismiss(std::uint64_t number) {
  const auto found = relays_.find(number);
  const bool ends = found->second->link().dismiss();
  admission_.remove(number);
  if (!ends) return false;
  farewells_.add(found->second->dismiss());
  forget(number, Ending::kSilent);
  return true;
}

void Gate::end(std::uint64_t number, Ending reason) {
  relays_.find(number)->second->link().end();
  forget(number, reason);
}

void Gate::forget(std::uint64_t number, Ending reason) {
  const auto found = relays_.find(number);
  note(found->second->link().address, reason);
  admission_.remove(number);
  waiting_.remove(found->second->source(), number);
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

}  // namespace wavefront::gate

#endif
