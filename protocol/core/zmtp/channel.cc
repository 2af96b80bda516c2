// SPDX-License-Identifier: GPL-3.0-or-later
#include "zmtp/channel.h"

#ifdef __linux__

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace wavefront::wire {

namespace {

constexpr unsigned char kMore = 1, kLong = 2, kCommand = 4;

// Requested send buffer in bytes; the system may allow less.
constexpr int kRoom = 4 * 1024 * 1024;

constexpr std::size_t kMostOfHeader = 9, kMostOfShort = 255;

// Returns the greeting of ZMTP 3.1 and the command READY for a socket type.
std::string greeting(std::string_view type) {
  std::string text(kGreetingBytes, '\0');
  text[0] = '\xFF';
  text[9] = '\x7F';
  text[10] = 3;
  text[11] = 1;
  text.replace(12, 4, "NULL");
  constexpr std::string_view kKey("\13Socket-Type");
  std::string ready("\5READY");
  ready += kKey;
  ready += std::string(3, '\0') + static_cast<char>(type.size());
  ready += type;
  text += static_cast<char>(kCommand);
  text += static_cast<char>(ready.size());
  return text + ready;
}

std::size_t write_header(unsigned char* header, unsigned char flags, std::size_t size) {
  if (size <= kMostOfShort) {
    header[0] = flags;
    header[1] = static_cast<unsigned char>(size);
    return 2;
  }
  header[0] = flags | kLong;
  for (std::size_t i = 0; i < 8; ++i) header[1 + i] = static_cast<unsigned char>(size >> (56 - 8 * i));
  return kMostOfHeader;
}

iovec part(const void* data, std::size_t size) {
  return {const_cast<void*>(data), size};
}

// Returns the bytes written, or -1 with errno.
ssize_t write_parts(int socket, std::span<iovec> parts) {
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  ssize_t written = -1;
  do {
    written = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (written < 0 && errno == EINTR);
  return written;
}

}  // namespace

Channel::Channel(Descriptor socket, std::string_view type, const MessageLimits& limits, std::size_t kept,
                 std::shared_ptr<Bytecount> buffered)
    : socket_(std::move(socket)), buffered_(std::move(buffered)), reader_(limits), kept_(kept) {
  fcntl(socket_.get(), F_SETFL, fcntl(socket_.get(), F_GETFL) | O_NONBLOCK);
  setsockopt(socket_.get(), SOL_SOCKET, SO_SNDBUF, &kRoom, sizeof kRoom);
  const std::string text = greeting(type);
  std::array parts{part(text.data(), text.size())};
  // These are the first bytes of a connection, so the buffer has room for them.
  if (write_parts(socket_.get(), parts) != static_cast<ssize_t>(text.size())) fail(Ending::kPeer);
  last_sent_ = std::chrono::steady_clock::now();
}

Channel::~Channel() {
  *buffered_ -= received_ + waiting_bytes_;
}

std::optional<Message> Channel::take() {
  auto message = reader_.take();
  count_received();
  return message;
}

void Channel::drop(Ending reason) {
  {
    const std::lock_guard lock(mutex_);
    fail(reason);
  }
  reader_.drop();
  count_received();
}

void Channel::count_received() {
  *buffered_ += reader_.bytes() - received_;  // wraps around if it is less
  received_ = reader_.bytes();
}

std::optional<Ending> Channel::receive(std::span<unsigned char> scratch) {
  const std::span<unsigned char> rest = reader_.rest();
  std::array parts{part(rest.data(), rest.size()), part(scratch.data(), scratch.size())};
  const ssize_t got = readv(socket_.get(), parts.data(), parts.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
  if (got <= 0) return cut().value_or(Ending::kPeer);
  const std::size_t size = static_cast<std::size_t>(got);
  const std::size_t direct = std::min(size, rest.size());
  reader_.fill(direct);
  const bool was_ready = reader_.is_ready();
  try {
    const auto ending = reader_.read(scratch.first(size - direct));
    count_received();
    if (ending) return ending;
    if (const auto context = reader_.take_ping()) send_pong(*context);
    if (reader_.is_ready() && !was_ready) {
      const std::lock_guard lock(mutex_);
      open_ = true;
      write_waiting();
    }
  } catch (const std::bad_alloc&) {
    return Ending::kMemory;
  }
  return std::nullopt;
}

Sent Channel::send(std::span<const Bytes> frames) {
  std::vector<std::array<unsigned char, kMostOfHeader>> headers(frames.size());
  std::vector<iovec> parts;
  parts.reserve(2 * frames.size());
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const unsigned char flags = i + 1 < frames.size() ? kMore : 0;
    const std::size_t size = write_header(headers[i].data(), flags, frames[i].size());
    parts.push_back(part(headers[i].data(), size));
    if (!frames[i].empty()) parts.push_back(part(frames[i].data(), frames[i].size()));
  }
  const std::lock_guard lock(mutex_);
  return send_parts(parts, open_);
}

void Channel::beat() {
  send_pong({});
}

Sent Channel::flush() {
  const std::lock_guard lock(mutex_);
  return write_waiting();
}

std::size_t Channel::unread() const {
  const std::lock_guard lock(mutex_);
  return waiting_bytes_;
}

bool Channel::is_waiting() const {
  const std::lock_guard lock(mutex_);
  return open_ && !cut_ && !waiting_.empty();
}

void Channel::hang_up() {
  const std::lock_guard lock(mutex_);
  if (socket_) shutdown(socket_.get(), SHUT_RDWR);
}

void Channel::close() {
  const std::lock_guard lock(mutex_);
  *buffered_ -= waiting_bytes_;
  waiting_.clear();
  waiting_bytes_ = written_ = 0;
  if (socket_) shutdown(socket_.get(), SHUT_RDWR);
  socket_.close();
}

std::optional<Ending> Channel::cut() const {
  const std::lock_guard lock(mutex_);
  return cut_;
}

// Requires the lock.
Sent Channel::send_parts(std::span<iovec> parts, bool at_once) {
  if (cut_ || !socket_) return Sent::kGone;
  std::size_t written = 0;
  if (at_once && waiting_.empty()) {
    const ssize_t sent = write_parts(socket_.get(), parts);
    if (sent < 0 && errno != EAGAIN) return fail(Ending::kPeer);
    written = sent < 0 ? 0 : static_cast<std::size_t>(sent);
    last_sent_ = std::chrono::steady_clock::now();
  }
  try {
    keep(parts, written);
  } catch (const std::bad_alloc&) {
    return fail(Ending::kMemory);  // Part of the message may have been sent.
  }
  if (waiting_bytes_ > kept_) return fail(Ending::kUnread);
  return waiting_.empty() ? Sent::kWhole : Sent::kWaiting;
}

// Requires the lock.
Sent Channel::write_waiting() {
  if (cut_ || !socket_) return Sent::kGone;
  while (open_ && !waiting_.empty()) {
    const Frame& first = waiting_.front();
    std::array parts{part(first.bytes.get() + written_, first.size - written_)};
    const ssize_t sent = write_parts(socket_.get(), parts);
    if (sent < 0 && errno == EAGAIN) return Sent::kWaiting;
    if (sent < 0) return fail(Ending::kPeer);
    last_sent_ = std::chrono::steady_clock::now();
    waiting_bytes_ -= static_cast<std::size_t>(sent);
    *buffered_ -= static_cast<std::size_t>(sent);
    written_ += static_cast<std::size_t>(sent);
    if (written_ == first.size) {
      waiting_.pop_front();
      written_ = 0;
    }
  }
  return waiting_.empty() ? Sent::kWhole : Sent::kWaiting;
}

// Copies the unwritten bytes. Requires the lock.
void Channel::keep(std::span<const iovec> parts, std::size_t written) {
  std::size_t size = 0;
  for (const iovec& each : parts) size += each.iov_len;
  if (size == written) return;
  Frame rest{std::make_unique_for_overwrite<unsigned char[]>(size - written), size - written};
  std::size_t at = 0, skipped = 0;
  for (const iovec& each : parts) {
    const std::size_t skip = std::min(written - skipped, each.iov_len);
    skipped += skip;
    std::memcpy(rest.bytes.get() + at, static_cast<const unsigned char*>(each.iov_base) + skip,
                each.iov_len - skip);
    at += each.iov_len - skip;
  }
  waiting_bytes_ += rest.size;
  *buffered_ += rest.size;
  waiting_.push_back(std::move(rest));
}

// Requires the lock, except in the constructor.
Sent Channel::fail(Ending reason) {
  cut_ = reason;
  waiting_.clear();
  *buffered_ -= waiting_bytes_;
  waiting_bytes_ = written_ = 0;
  // Wakes the thread that waits for the socket. Received data can still be read, and then the end.
  shutdown(socket_.get(), reason == Ending::kPeer ? SHUT_WR : SHUT_RDWR);
  return Sent::kGone;
}

void Channel::send_pong(std::string_view context) {
  constexpr std::string_view kPong("\4PONG");
  std::array<unsigned char, kMostOfHeader> header;
  const std::size_t size = write_header(header.data(), kCommand, kPong.size() + context.size());
  std::array parts{part(header.data(), size), part(kPong.data(), kPong.size()),
                   part(context.data(), context.size())};
  const std::lock_guard lock(mutex_);
  // A peer that does not read needs no more PONGs.
  if (waiting_.empty()) send_parts(parts, true);
}

}  // namespace wavefront::wire

#endif
