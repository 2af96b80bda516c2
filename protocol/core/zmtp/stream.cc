// SPDX-License-Identifier: GPL-3.0-or-later
#include "zmtp/stream.h"

#ifdef __linux__

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <limits>
#include <system_error>

#include "zmtp/spin.h"

namespace wavefront::wire {

namespace {

using std::chrono::milliseconds;

constexpr std::size_t kScratch = 128 * 1024;

// The evaluator sends heartbeats at this interval, too.
constexpr milliseconds kBeat{1000};

// Maximum wait of the helper thread for room in the socket before it checks whether to end.
constexpr int kRoomMs = 100;

Descriptor connected(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path)
    throw std::system_error(ENAMETOOLONG, std::generic_category());
  path.copy(address.sun_path, path.size());
  // The length delimits an abstract name, a zero byte delimits a path.
  const std::size_t size = offsetof(sockaddr_un, sun_path) + path.size() + (path[0] != '\0');
  // Non-blocking: with a full backlog, connect() would block, indefinitely if nobody accepts.
  Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket ||
      connect(socket.get(), reinterpret_cast<sockaddr*>(&address), static_cast<socklen_t>(size)) != 0)
    throw std::system_error(errno, std::generic_category());
  return socket;
}

// Like poll, whose milliseconds are coarse compared to the time of a call.
int poll_until(pollfd* waited, nfds_t count, Stream::Time until) {
  using std::chrono::nanoseconds;
  const auto left = std::max(nanoseconds(until - std::chrono::steady_clock::now()), nanoseconds(0)).count();
  constexpr std::int64_t kSecond = 1'000'000'000;
  const timespec time{static_cast<time_t>(left / kSecond), static_cast<long>(left % kSecond)};
  return ppoll(waited, count, &time, nullptr);
}

}  // namespace

Stream::Stream(const std::string& path, const MessageLimits& limits)
    : channel_(connected(path), "DEALER", limits, std::numeric_limits<std::size_t>::max()),
      scratch_(kScratch) {
  helper_ = std::thread([this] { help(); });
  pthread_setname_np(helper_.native_handle(), "stream");
}

bool Stream::send(std::span<const Bytes> frames) {
  const Sent sent = channel_.send(frames);
  if (sent == Sent::kWaiting) {
    const std::lock_guard lock(mutex_);
    news_.notify_one();
  }
  return sent != Sent::kGone;
}

Stream::Found Stream::wait(std::optional<Time> until, int interrupt) {
  using Clock = std::chrono::steady_clock;
  interrupted_ = false;
  while (true) {
    if (channel_.has_message()) return Found::kMessage;
    if (ended_) return Found::kEnd;
    std::array waited{pollfd{channel_.descriptor(), POLLIN, 0}, pollfd{interrupt, POLLIN, 0}};
    const nfds_t count = interrupt < 0 ? 1 : 2;
    const Time now = Clock::now();
    int ready = 0;
    if ((!until || now < *until) && may_spin()) {
      const Time spun = until ? std::min(*until, now + kSpin) : now + kSpin;
      while (ready == 0 && Clock::now() < spun) ready = poll(waited.data(), count, 0);
    }
    if (ready == 0) ready = until ? poll_until(waited.data(), count, *until) : poll(waited.data(), count, -1);
    if (ready < 0 && errno == EINTR) return Found::kSignal;
    interrupted_ = ready > 0 && waited[1].revents != 0;
    if (ready > 0 && waited[0].revents != 0) {
      ended_ = channel_.receive(scratch_);
      if (!heartbeats_ && channel_.is_ready() && channel_.has_heartbeats()) {
        const std::lock_guard lock(mutex_);
        heartbeats_ = true;
        news_.notify_one();
      }
    } else {
      return Found::kNothing;  // Also if poll failed for lack of memory.
    }
  }
}

void Stream::close() {
  {
    const std::lock_guard lock(mutex_);
    if (closing_) return;
    closing_ = true;
    news_.notify_one();
  }
  channel_.hang_up();
  if (helper_.joinable()) helper_.join();
}

void Stream::help() {
  std::unique_lock lock(mutex_);
  while (!closing_) {
    if (channel_.is_waiting()) {
      lock.unlock();
      pollfd waited{channel_.descriptor(), POLLOUT, 0};
      poll(&waited, 1, kRoomMs);
      channel_.flush();
      lock.lock();
      continue;
    }
    const auto due = channel_.last_sent() + kBeat;
    if (heartbeats_ && std::chrono::steady_clock::now() >= due) {
      lock.unlock();
      channel_.beat();
      lock.lock();
      continue;
    }
    if (heartbeats_) {
      news_.wait_until(lock, due);
    } else {
      news_.wait(lock);
    }
  }
}

}  // namespace wavefront::wire

#endif
