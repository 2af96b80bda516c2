// SPDX-License-Identifier: GPL-3.0-or-later
#include "header/flat_map_writer.h"

#include <bit>
#include <limits>

namespace wavefront::wire {

namespace {

constexpr unsigned char kFixMap = 0x80, kFixText = 0xA0;

constexpr unsigned char kFloat64 = 0xCB, kUnsigned8 = 0xCC, kUnsigned16 = 0xCD, kUnsigned32 = 0xCE,
                        kUnsigned64 = 0xCF, kText8 = 0xD9, kText16 = 0xDA;

constexpr std::size_t kMostOfFixText = 31, kMostOfText8 = 255;

constexpr std::uint64_t kMostOfFixNumber = 127;

}  // namespace

FlatMapWriter::FlatMapWriter(unsigned entries) {
  data_.reserve(128);
  data_.push_back(static_cast<unsigned char>(kFixMap | entries));
}

void FlatMapWriter::add(std::string_view key, std::string_view value) {
  text(key);
  text(value);
}

void FlatMapWriter::add(std::string_view key, std::uint64_t number) {
  text(key);
  if (number <= kMostOfFixNumber) {
    data_.push_back(static_cast<unsigned char>(number));
  } else if (number <= std::numeric_limits<std::uint8_t>::max()) {
    put(kUnsigned8, number, 1);
  } else if (number <= std::numeric_limits<std::uint16_t>::max()) {
    put(kUnsigned16, number, 2);
  } else if (number <= std::numeric_limits<std::uint32_t>::max()) {
    put(kUnsigned32, number, 4);
  } else {
    put(kUnsigned64, number, 8);
  }
}

void FlatMapWriter::add(std::string_view key, double number) {
  text(key);
  put(kFloat64, std::bit_cast<std::uint64_t>(number), 8);
}

// Appends a tag and the lowest `bytes` bytes of a number, big-endian.
void FlatMapWriter::put(unsigned char tag, std::uint64_t number, std::size_t bytes) {
  data_.push_back(tag);
  for (std::size_t i = bytes; i-- > 0;) data_.push_back(static_cast<unsigned char>(number >> (8 * i)));
}

void FlatMapWriter::text(std::string_view text) {
  if (text.size() <= kMostOfFixText) {
    data_.push_back(static_cast<unsigned char>(kFixText | text.size()));
  } else if (text.size() <= kMostOfText8) {
    put(kText8, text.size(), 1);
  } else {
    put(kText16, text.size(), 2);
  }
  data_.insert(data_.end(), text.begin(), text.end());
}

}  // namespace wavefront::wire
