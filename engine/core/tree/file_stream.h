// SPDX-License-Identifier: GPL-3.0-or-later
// Buffered reading and writing of numbers in little-endian byte order, with a checksum of all bytes.
//
// The checksum takes eight bytes at a time. Each step is a bijection of both the sum and the bytes, so any
// change within one group of eight bytes is detected. It does not protect against forged files.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace wavefront::tree {

class FileWriter {
 public:
  // Replaces the contents of the file. Throws std::invalid_argument if it cannot be written.
  explicit FileWriter(const std::filesystem::path& path);

  template <std::unsigned_integral T>
  void put(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) {
      buffer_[used_ + i] = static_cast<char>(static_cast<uint64_t>(value) >> 8 * i);
    }
    used_ += sizeof(T);
    if (used_ >= kBuffer) flush();
  }
  void put(float value) { put(std::bit_cast<uint32_t>(value)); }
  void put(double value) { put(std::bit_cast<uint64_t>(value)); }
  // Its length in 32 bits, then its bytes.
  void put(const std::string& text);

  // Writes the checksum and closes the file. Returns its size in bytes. Throws like the constructor.
  uint64_t finish();

 private:
  friend class FileReader;
  static constexpr size_t kBuffer = size_t{1} << 20;

  void flush();
  void write(size_t bytes);

  std::ofstream file_;
  std::vector<char> buffer_ = std::vector<char>(kBuffer + sizeof(uint64_t));
  size_t used_ = 0;
  uint64_t sum_ = 0, written_ = 0;
};

class FileReader {
 public:
  // Throws std::invalid_argument if the file cannot be read or has no room for a checksum.
  explicit FileReader(const std::filesystem::path& path);

  // Returns the next number. Throws std::invalid_argument at the end of the contents.
  template <std::unsigned_integral T>
  T take() {
    if (end_ - at_ < sizeof(T)) refill(sizeof(T));
    uint64_t value = 0;
    for (size_t i = 0; i < sizeof(T); ++i) {
      value |= uint64_t{static_cast<unsigned char>(buffer_[at_ + i])} << 8 * i;
    }
    at_ += sizeof(T);
    return static_cast<T>(value);
  }
  float take_float() { return std::bit_cast<float>(take<uint32_t>()); }
  double take_double() { return std::bit_cast<double>(take<uint64_t>()); }
  // Throws std::invalid_argument if it is longer than `most` bytes.
  std::string take_text(size_t most);

  uint64_t bytes() const { return bytes_; }
  // Returns true if all of the contents have been taken.
  bool at_end() const { return left_ == 0 && at_ == end_; }

  // Reads the whole file from its beginning. Returns false if the checksum differs. Nothing can be taken
  // afterwards.
  bool sum_matches();

 private:
  void refill(size_t needed);
  void read(size_t bytes);

  std::ifstream file_;
  uint64_t bytes_ = 0;  // of the file, with the checksum
  uint64_t left_ = 0;   // contents that are not in the buffer yet
  std::vector<char> buffer_;
  size_t at_ = 0, end_ = 0;
};

}  // namespace wavefront::tree
