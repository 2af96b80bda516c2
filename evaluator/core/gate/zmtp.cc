// SPDX-License-Identifier: GPL-3.0-or-later
#include "gate/zmtp.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace wavefront::gate {

namespace {

// Overhead of CURVE per frame: the command's name, a nonce, a box's header, and the flags.
constexpr std::uint64_t kCurveOverhead = 33;

constexpr std::uint64_t kCurveHandshakeFrames = 2;

constexpr std::string_view kReady("\5READY");

}  // namespace

std::int64_t cost_of(std::size_t frame_bytes, Mechanism mechanism) {
  const auto bytes = static_cast<std::int64_t>(frame_bytes);
  return mechanism == Mechanism::kCurve && bytes < kSmallFrame ? 0 : bytes + kFrameCost;
}

std::optional<Ending> FrameReader::read(const unsigned char* data, std::size_t size) {
  const unsigned char* const end = data + size;
  while (data != end) {
    std::optional<Ending> ending;
    if (!greeting_.is_complete()) {
      ending = greeting_.read(*data++);
    } else if (left_ > 0) {
      const auto skipped = std::min<std::uint64_t>(left_, static_cast<std::uint64_t>(end - data));
      left_ -= skipped;
      data += skipped;
    } else if (head_.read(*data++)) {
      ending = begin_frame();
    }
    if (ending) return ending;
  }
  return std::nullopt;
}

std::int64_t FrameReader::take_cost() {
  return std::exchange(cost_, 0);
}

std::int64_t FrameReader::take_opaque_frames() {
  return std::exchange(opaque_frames_, 0);
}

std::optional<Ending> FrameReader::begin_frame() {
  if (!head_.has_known_flags()) return Ending::kMalformed;
  const std::uint64_t size = left_ = head_.size();
  if (size > limits_.frame_bytes) return Ending::kFrame;
  if (mechanism() == Mechanism::kCurve) return begin_opaque_frame(size);
  if (!head_.is_command()) return begin_message_frame(size, head_.has_more());
  if (head_.has_more()) return Ending::kMalformed;
  return size > (handshake_frames_++ == 0 ? kMostOfHandshake : kMostOfCommand) ? std::optional(Ending::kFrame)
                                                                               : std::nullopt;
}

std::optional<Ending> FrameReader::begin_opaque_frame(std::uint64_t size) {
  if (handshake_frames_ < kCurveHandshakeFrames) {
    ++handshake_frames_;
    return size > kMostOfHandshake ? std::optional(Ending::kFrame) : std::nullopt;
  }
  if (size < kCurveOverhead) return Ending::kMalformed;
  cost_ += cost_of(size - kCurveOverhead, Mechanism::kCurve);
  ++opaque_frames_;
  return std::nullopt;
}

std::optional<Ending> FrameReader::begin_message_frame(std::uint64_t size, bool more) {
  message_bytes_ += size;
  ++message_frames_;
  if (message_frames_ > limits_.message_frames) return Ending::kParts;
  if (message_bytes_ > limits_.message_bytes) return Ending::kMessage;
  cost_ += cost_of(size, Mechanism::kNull);
  if (!more) message_bytes_ = message_frames_ = 0;
  return std::nullopt;
}

void HandshakeReader::read(const unsigned char* data, std::size_t size) {
  const unsigned char* const end = data + size;
  while (data != end && !(ready_ && left_ == 0)) {
    const auto there = static_cast<std::uint64_t>(end - data);
    if (greeting_bytes_ < kGreetingBytes) {
      const auto skipped = std::min<std::uint64_t>(kGreetingBytes - greeting_bytes_, there);
      greeting_bytes_ += skipped;
      data += skipped;
    } else if (left_ > 0 && name_.size() < kReady.size()) {
      name_ += static_cast<char>(*data++);
      --left_;
      ready_ = name_ == kReady;
    } else if (left_ > 0) {
      const auto skipped = std::min(left_, there);
      left_ -= skipped;
      data += skipped;
    } else if (head_.read(*data++)) {
      left_ = head_.size();
      name_.clear();
    }
  }
}

}  // namespace wavefront::gate
