#include "gate/zmtp.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

namespace wavefront::gate {

namespace {

constexpr unsigned char kMore = 1, kLong = 2, kCommand = 4;

constexpr std::size_t kVersionAt = 10, kMechanismAt = 12, kMechanismSize = 20;

// NULL's READY, CURVE's HELLO and INITIATE: keys, names of sockets and the like.
constexpr std::uint64_t kMostOfHandshake = 8192;

// PING, PONG and ERROR.
constexpr std::uint64_t kMostOfCommand = 1024;

// What CURVE adds to a frame: the name of the command, a nonce, a box's head, and the flags.
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
    if (greeting_size_ < kGreeting) {
      ending = greet(*data++);
    } else if (left_ > 0) {
      const auto skipped = std::min<std::uint64_t>(left_, static_cast<std::uint64_t>(end - data));
      left_ -= skipped;
      data += skipped;
    } else {
      header_[header_size_++] = *data++;
      if (header_size_ == ((header_[0] & kLong) != 0 ? 9U : 2U)) {
        ending = begin_frame();
        header_size_ = 0;
      }
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

std::optional<Ending> FrameReader::greet(unsigned char byte) {
  const std::size_t at = greeting_size_;
  greeting_[greeting_size_++] = byte;
  if (at == 0 && byte != 0xFF) return Ending::kForeign;
  if (at == kSignature - 1 && byte != 0x7F) return Ending::kForeign;
  if (at == kVersionAt && byte < 3) return Ending::kForeign;
  if (greeting_size_ < kGreeting) return std::nullopt;
  const auto* const name = reinterpret_cast<const char*>(greeting_.data() + kMechanismAt);
  const std::string_view mechanism(name, strnlen(name, kMechanismSize));
  if (mechanism == "NULL") {
    mechanism_ = Mechanism::kNull;
  } else if (mechanism == "CURVE") {
    mechanism_ = Mechanism::kCurve;
  } else {
    return Ending::kForeign;
  }
  return std::nullopt;
}

std::optional<Ending> FrameReader::begin_frame() {
  const unsigned char flags = header_[0];
  if ((flags & ~(kMore | kLong | kCommand)) != 0) return Ending::kMalformed;
  std::uint64_t size = header_[1];
  for (std::size_t i = 2; i < header_size_; ++i) size = size << 8 | header_[i];
  if (size > limits_.frame_bytes) return Ending::kFrame;
  left_ = size;
  if (mechanism_ == Mechanism::kCurve) return begin_opaque_frame(size);
  if ((flags & kCommand) != 0) {
    if ((flags & kMore) != 0) return Ending::kMalformed;
    return size > (handshake_frames_++ == 0 ? kMostOfHandshake : kMostOfCommand)
               ? std::optional(Ending::kFrame)
               : std::nullopt;
  }
  return begin_message_frame(size, (flags & kMore) != 0);
}

std::optional<Ending> FrameReader::begin_opaque_frame(std::uint64_t size) {
  if (handshake_frames_ < kCurveHandshakeFrames) {
    ++handshake_frames_;
    return size > kMostOfHandshake ? std::optional(Ending::kFrame) : std::nullopt;
  }
  if (size < kCurveOverhead) return Ending::kMalformed;
  cost_ += cost_of(size - kCurveOverhead, mechanism_);
  ++opaque_frames_;
  return std::nullopt;
}

std::optional<Ending> FrameReader::begin_message_frame(std::uint64_t size, bool more) {
  message_bytes_ += size;
  ++message_frames_;
  if (message_frames_ > limits_.message_frames) return Ending::kParts;
  if (message_bytes_ > limits_.message_bytes) return Ending::kMessage;
  cost_ += cost_of(size, mechanism_);
  if (!more) message_bytes_ = message_frames_ = 0;
  return std::nullopt;
}

void HandshakeReader::read(const unsigned char* data, std::size_t size) {
  const unsigned char* const end = data + size;
  while (data != end && !(ready_ && left_ == 0)) {
    const auto there = static_cast<std::uint64_t>(end - data);
    if (greeting_bytes_ < kGreeting) {
      const auto skipped = std::min<std::uint64_t>(kGreeting - greeting_bytes_, there);
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
    } else {
      header_[header_size_++] = *data++;
      if (header_size_ == ((header_[0] & kLong) != 0 ? 9U : 2U)) begin_frame();
    }
  }
}

void HandshakeReader::begin_frame() {
  left_ = header_[1];
  for (std::size_t i = 2; i < header_size_; ++i) left_ = left_ << 8 | header_[i];
  header_size_ = 0;
  name_.clear();
}

}  // namespace wavefront::gate
