// SPDX-License-Identifier: GPL-3.0-or-later
// Parsers for ZMTP 3 streams: the 64-byte greeting, and the heads of frames. A head is a byte of flags and
// the
// frame's length in one byte or eight.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "zmtp/ending.h"

namespace wavefront::wire {

inline constexpr std::size_t kGreetingBytes = 64;

// Maximum bytes of READY.
inline constexpr std::uint64_t kMostOfHandshake = 8192;

// Maximum bytes of PING, PONG and ERROR.
inline constexpr std::uint64_t kMostOfCommand = 1024;

class Greeting {
 public:
  // Reads the next byte; returns a reason if the connection must end.
  std::optional<Ending> read(unsigned char byte);

  bool is_complete() const { return size_ == kGreetingBytes; }

  // Of ZMTP 3.
  unsigned minor_version() const { return bytes_[kMinorAt]; }

 private:
  static constexpr std::size_t kSignatureEnd = 9, kMajorAt = 10, kMinorAt = 11, kMechanismAt = 12,
                               kMechanismSize = 20;

  std::array<unsigned char, kGreetingBytes> bytes_{};
  std::size_t size_ = 0;
};

class FrameHead {
 public:
  // Reads the next byte of a head, or the first of a new one; returns true if the head is complete.
  bool read(unsigned char byte);

  std::uint64_t size() const { return size_; }
  bool is_command() const { return (flags_ & kCommand) != 0; }
  bool has_more() const { return (flags_ & kMore) != 0; }

  // True if ZMTP defines all its flags.
  bool has_known_flags() const { return (flags_ & ~(kMore | kLong | kCommand)) == 0; }

 private:
  static constexpr unsigned char kMore = 1, kLong = 2, kCommand = 4;

  unsigned char flags_ = 0;
  bool begun_ = false;
  int left_ = 0;  // remaining bytes of the length
  std::uint64_t size_ = 0;
};

}  // namespace wavefront::wire
