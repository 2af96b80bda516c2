// SPDX-License-Identifier: GPL-3.0-or-later
// Writes flat msgpack maps with text keys, with the same bytes as protocol/wire/codec.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace wavefront::wire {

class FlatMapWriter {
 public:
  // entries: number of entries to be added, at most 15.
  explicit FlatMapWriter(unsigned entries);

  // text: UTF-8 of less than 64 KiB. number: not negative.
  void add(std::string_view key, std::string_view text);
  void add(std::string_view key, std::uint64_t number);
  void add(std::string_view key, double number);

  // Returns the whole map, after all entries were added.
  std::vector<unsigned char> take() { return std::move(data_); }

 private:
  void put(unsigned char tag, std::uint64_t number, std::size_t bytes);
  void text(std::string_view text);

  std::vector<unsigned char> data_;
};

}  // namespace wavefront::wire
