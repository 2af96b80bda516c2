// SPDX-License-Identifier: GPL-3.0-or-later
#include "zmtp/reader.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "zmtp/refusal.h"

namespace wavefront::wire {

namespace {

constexpr std::string_view kReady("\5READY"), kPing("\4PING");

// Bytes of the time to live before a PING's context.
constexpr std::size_t kTimeToLive = 2;

// Maximum bytes of a context in ZMTP.
constexpr std::size_t kMostOfContext = 16;

// Memory of a frame and its message in addition to the bytes.
constexpr std::size_t kFrameCost = 128;

std::size_t cost_of(const Message& message) {
  std::size_t cost = 0;
  for (const Frame& frame : message) cost += frame.size + kFrameCost;
  return cost;
}

}  // namespace

std::optional<Ending> MessageReader::read(std::span<const unsigned char> data) {
  while (!data.empty()) {
    std::optional<Ending> ending;
    if (!greeting_.is_complete()) {
      ending = greeting_.read(data.front());
      data = data.subspan(1);
    } else if (in_frame_) {
      const std::size_t size = std::min(frame_.size - filled_, data.size());
      std::memcpy(frame_.bytes.get() + filled_, data.data(), size);
      filled_ += size;
      data = data.subspan(size);
      if (filled_ == frame_.size) ending = end_frame();
    } else {
      const bool complete = head_.read(data.front());
      data = data.subspan(1);
      if (complete) ending = begin_frame();
    }
    if (ending) return ending;
  }
  return std::nullopt;
}

std::span<unsigned char> MessageReader::rest() {
  // Excludes the last byte: `read` must see the frame's end.
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
  bytes_ -= cost_of(message);
  return message;
}

void MessageReader::drop() {
  messages_.clear();
  message_.clear();
  frame_ = {};
  in_frame_ = false;
  bytes_ = 0;
}

std::optional<std::string> MessageReader::take_ping() {
  return std::exchange(ping_, std::nullopt);
}

std::optional<Ending> MessageReader::begin_frame() {
  const std::uint64_t size = head_.size();
  if (!head_.has_known_flags()) return Ending::kMalformed;
  if (head_.is_command()) {
    if (head_.has_more()) return Ending::kMalformed;
    if (size > (ready_ ? kMostOfCommand : kMostOfHandshake)) return Ending::kFrame;
  } else {
    if (!ready_) return Ending::kMalformed;
    if (size > limits_.frame_bytes) return Ending::kFrame;
    if (message_.size() >= limits_.message_frames) return Ending::kParts;
    message_bytes_ += size;
    if (message_bytes_ > limits_.message_bytes) return Ending::kMessage;
  }
  frame_ = {std::make_unique_for_overwrite<unsigned char[]>(size), static_cast<std::size_t>(size)};
  bytes_ += frame_.size + kFrameCost;
  filled_ = 0;
  in_frame_ = true;
  return size == 0 ? end_frame() : std::nullopt;
}

std::optional<Ending> MessageReader::end_frame() {
  in_frame_ = false;
  if (head_.is_command()) {
    bytes_ -= frame_.size + kFrameCost;
    return obey(std::exchange(frame_, {}));
  }
  message_.push_back(std::exchange(frame_, {}));
  if (!head_.has_more()) {
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
  return std::nullopt;  // Other commands are ignored.
}

}  // namespace wavefront::wire
