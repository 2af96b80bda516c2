// SPDX-License-Identifier: GPL-3.0-or-later
// What every reader of a ZMTP 3 stream needs: the greeting of 64 bytes, and the heads of frames. A head is a
// byte of flags and the frame's length, in one byte or eight.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "zmtp/ending.h"

namespace wavefront::wire {

inline constexpr std::size_t kGreetingBytes = 64;

// READY, and CURVE's HELLO and INITIATE: keys, names of sockets and the like.
inline constexpr std::uint64_t kMostOfHandshake = 8192;

// PING, PONG and ERROR.
inline constexpr std::uint64_t kMostOfCommand = 1024;

enum class Mechanism : std::uint8_t { kUnknown, kNull, kCurve };

class Greeting {
 public:
  // Reads the next byte; the reason why the connection has to end, if there is one.
  std::optional<Ending> read(unsigned char byte);

  bool is_complete() const { return size_ == kGreetingBytes; }

  // Whether the signature has come, by which one knows ZeroMQ's protocol.
  bool has_signature() const { return size_ > kSignatureEnd; }

  // Of ZMTP 3.
  unsigned minor_version() const { return bytes_[kMinorAt]; }

  // Known once the greeting is complete.
  Mechanism mechanism() const { return mechanism_; }

 private:
  static constexpr std::size_t kSignatureEnd = 9, kMajorAt = 10, kMinorAt = 11, kMechanismAt = 12,
                               kMechanismSize = 20;

  std::array<unsigned char, kGreetingBytes> bytes_{};
  std::size_t size_ = 0;
  Mechanism mechanism_ = Mechanism::kUnknown;
};

class FrameHead {
 public:
  // Reads the next byte of a head, the first one if the last head was complete; whether it is complete now.
  bool read(unsigned char byte);

  // Whether some bytes of a head have come, and not all of them.
  bool is_begun() const { return begun_; }

  std::uint64_t size() const { return size_; }
  bool is_command() const { return (flags_ & kCommand) != 0; }
  bool has_more() const { return (flags_ & kMore) != 0; }

  // Whether ZMTP has these flags.
  bool has_known_flags() const { return (flags_ & ~(kMore | kLong | kCommand)) == 0; }

 private:
  static constexpr unsigned char kMore = 1, kLong = 2, kCommand = 4;

  unsigned char flags_ = 0;
  bool begun_ = false;
  int left_ = 0;  // bytes of the length
  std::uint64_t size_ = 0;
};

}  // namespace wavefront::wire
