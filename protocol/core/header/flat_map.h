// SPDX-License-Identifier: GPL-3.0-or-later
// Reads flat msgpack maps with text keys, such as the headers of evaluations and results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace wavefront::wire {

// A number, text or nil. Booleans are kOther.
struct Value {
  enum class Kind : std::uint8_t { kNil, kInteger, kFloat, kText, kOther };

  Kind kind = Kind::kNil;
  std::int64_t integer = 0;
  double number = 0;  // also set for an integer
  std::string_view text;
};

// Supports only what is common. It rejects more than fifteen entries, keys that are not text, nested values,
// texts of more than 255 bytes or beyond ASCII, and integers above 2^63 - 1. The caller then needs another
// decoder.
class FlatMap {
 public:
  explicit FlatMap(std::span<const unsigned char> data);

  // Reads the next entry; returns false at the end or for an unsupported entry.
  bool next(std::string_view& key, Value& value);

  // True if all entries have been read and nothing follows them.
  bool is_whole() const { return !gave_up_ && entries_ == 0 && at_ == data_.size(); }

 private:
  std::optional<std::uint64_t> big_endian(std::size_t size);
  bool text(std::size_t size, std::string_view& found);
  bool read(Value& value);
  bool read_number(unsigned char tag, Value& value);

  std::span<const unsigned char> data_;
  std::size_t at_ = 0;
  std::size_t entries_ = 0;  // still to read
  bool gave_up_ = false;
};

}  // namespace wavefront::wire
