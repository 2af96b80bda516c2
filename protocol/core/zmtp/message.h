// SPDX-License-Identifier: GPL-3.0-or-later
// Messages, their frames, and the limits for received ones.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace wavefront::wire {

struct Frame {
  std::unique_ptr<unsigned char[]> bytes;
  std::size_t size = 0;
};

using Message = std::vector<Frame>;

// Bytes owned by somebody else.
using Bytes = std::span<const unsigned char>;

inline Bytes bytes_of(const Frame& frame) {
  return {frame.bytes.get(), frame.size};
}

template <typename T>
Bytes bytes_of(std::span<const T> values) {
  return {reinterpret_cast<const unsigned char*>(values.data()), values.size_bytes()};
}

inline std::vector<Bytes> frames_of(const Message& message) {
  std::vector<Bytes> frames;
  frames.reserve(message.size());
  for (const Frame& frame : message) frames.push_back(bytes_of(frame));
  return frames;
}

struct MessageLimits {
  std::size_t frame_bytes;
  std::size_t message_bytes;  // of all frames of a message
  std::size_t message_frames;
};

}  // namespace wavefront::wire
