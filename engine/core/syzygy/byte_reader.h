// SPDX-License-Identifier: GPL-3.0-or-later
// Sequential reading of a file's bytes, with bounds checks.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>

namespace wavefront::syzygy {

// A file is not a table, or truncated. The message gives the reason, but not the file.
class DamagedTable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Unaligned little-endian numbers.
inline uint16_t read_u16(const uint8_t* at) {
  return static_cast<uint16_t>(at[0] | at[1] << 8);
}
inline uint32_t read_u32(const uint8_t* at) {
  return static_cast<uint32_t>(read_u16(at)) | static_cast<uint32_t>(read_u16(at + 2)) << 16;
}

class ByteReader {
 public:
  explicit ByteReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  // The next `count` bytes. Throws DamagedTable if there are fewer.
  const uint8_t* take(uint64_t count) {
    if (count > bytes_.size() - position_) throw DamagedTable("it is cut short");
    const uint8_t* taken = bytes_.data() + position_;
    position_ += static_cast<size_t>(count);
    return taken;
  }
  uint8_t u8() { return *take(1); }
  uint16_t u16() { return read_u16(take(2)); }
  uint32_t u32() { return read_u32(take(4)); }

  // Skips to the next multiple of a power of two from the beginning of the file.
  void align(size_t unit) { take(-position_ & (unit - 1)); }
  size_t left() const { return bytes_.size() - position_; }

 private:
  std::span<const uint8_t> bytes_;
  size_t position_ = 0;
};

}  // namespace wavefront::syzygy
