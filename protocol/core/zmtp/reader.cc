#include "zmtp/reader.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "zmtp/refusal.h"

namespace wavefront::wire {

namespace {

constexpr unsigned char kMore = 1, kLong = 2, kCommand = 4;

constexpr std::size_t kSignatureEnd = 9, kMajorAt = 10, kMechanismAt = 12, kMechanismSize = 20;

// READY: the names of sockets and the like.
constexpr std::uint64_t kMostOfHandshake = 8192;

// PING, PONG and ERROR.
constexpr std::uint64_t kMostOfCommand = 1024;

constexpr std::string_view kReady("\5READY"), kPing("\4PING");

// The time to live, in front of a PING's context.
constexpr std::size_t kTimeToLive = 2;

// Of a context; a longer one breaks the protocol.
constexpr std::size_t kMostOfContext = 16;

}  // namespace

std::optional<Ending> MessageReader::read(std::span<const unsigned char> data) {
  while (!data.empty()) {
    std::optional<Ending> ending;
    if (greeting_size_ < kGreetingBytes) {
      ending = greet(data.front());
      data = data.subspan(1);
    } else if (in_frame_) {
      const std::size_t size = std::min(frame_.size - filled_, data.size());
      std::memcpy(frame_.bytes.get() + filled_, data.data(), size);
      filled_ += size;
      data = data.subspan(size);
      if (filled_ == frame_.size) ending = end_frame();
    } else {
      header_[header_size_++] = data.front();
      data = data.subspan(1);
      if (header_size_ == ((header_[0] & kLong) != 0 ? 9U : 2U)) ending = begin_frame();
    }
    if (ending) return ending;
  }
  return std::nullopt;
}

std::span<unsigned char> MessageReader::rest() {
  // The last byte is left to `read`, which has to see the frame's end.
  if (!in_frame_ || frame_.size - filled_ <= 1) return {};
  return {frame_.bytes.get() + filled_, frame_.size - filled_ - 1};
}

void MessageReader::fill(std::size_t size) {
  filled_ += size;
}

std::optional<Message> MessageReader::take() {
  if (messages_.empty()) return std::nullopt;
  Message message = std::move(messages_.front());
  messages_.pop_front();
  return message;
}

std::optional<std::string> MessageReader::take_ping() {
  return std::exchange(ping_, std::nullopt);
}

std::optional<Ending> MessageReader::greet(unsigned char byte) {
  const std::size_t at = greeting_size_;
  greeting_[greeting_size_++] = byte;
  if (at == 0 && byte != 0xFF) return Ending::kForeign;
  if (at == kSignatureEnd && byte != 0x7F) return Ending::kForeign;
  if (at == kMajorAt && byte < 3) return Ending::kForeign;
  if (greeting_size_ < kGreetingBytes) return std::nullopt;
  const auto* const name = reinterpret_cast<const char*>(greeting_.data() + kMechanismAt);
  if (std::string_view(name, strnlen(name, kMechanismSize)) != "NULL") return Ending::kForeign;
  return std::nullopt;
}

std::optional<Ending> MessageReader::begin_frame() {
  const unsigned char flags = header_[0];
  if ((flags & ~(kMore | kLong | kCommand)) != 0) return Ending::kMalformed;
  std::uint64_t size = header_[1];
  for (std::size_t i = 2; i < header_size_; ++i) size = size << 8 | header_[i];
  if ((flags & kCommand) != 0) {
    if ((flags & kMore) != 0) return Ending::kMalformed;
    if (size > (ready_ ? kMostOfCommand : kMostOfHandshake)) return Ending::kFrame;
  } else {
    if (!ready_) return Ending::kMalformed;
    if (size > limits_.frame_bytes) return Ending::kFrame;
    if (message_.size() >= limits_.message_frames) return Ending::kParts;
    message_bytes_ += size;
    if (message_bytes_ > limits_.message_bytes) return Ending::kMessage;
  }
  header_size_ = 0;
  frame_ = {std::make_unique_for_overwrite<unsigned char[]>(size), static_cast<std::size_t>(size)};
  filled_ = 0;
  in_frame_ = true;
  return size == 0 ? end_frame() : std::nullopt;
}

std::optional<Ending> MessageReader::end_frame() {
  in_frame_ = false;
  const unsigned char flags = header_[0];
  if ((flags & kCommand) != 0) return obey(std::exchange(frame_, {}));
  message_.push_back(std::exchange(frame_, {}));
  if ((flags & kMore) == 0) {
    messages_.push_back(std::exchange(message_, {}));
    message_bytes_ = 0;
  }
  return std::nullopt;
}

std::optional<Ending> MessageReader::obey(const Frame& command) {
  const std::string_view text(reinterpret_cast<const char*>(command.bytes.get()), command.size);
  if (text.starts_with(kErrorCommand) && text.ends_with(kTooManyConnections)) return Ending::kRefused;
  if (!ready_) {
    if (!text.starts_with(kReady)) return Ending::kForeign;
    ready_ = true;
  } else if (text.starts_with(kPing)) {
    if (text.size() < kPing.size() + kTimeToLive) return Ending::kMalformed;
    const std::string_view context = text.substr(kPing.size() + kTimeToLive);
    if (context.size() > kMostOfContext) return Ending::kMalformed;
    ping_ = context;
  }
  return std::nullopt;  // What else there is, is not for us.
}

}  // namespace wavefront::wire
