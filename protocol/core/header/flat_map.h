// SPDX-License-Identifier: GPL-3.0-or-later
// Reads msgpack maps of text to plain values, as the headers of evaluations and of their results are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace wavefront::wire {

// A number, text or nil. Booleans are none of them.
struct Value {
  enum class Kind : std::uint8_t { kNil, kInteger, kFloat, kText, kOther };

  Kind kind = Kind::kNil;
  std::int64_t integer = 0;
  double number = 0;  // of an integer, too
  std::string_view text;
};

// Gives up on whatever is rare: more than fifteen entries, keys that are no text, values that have entries of
// their own, texts of more than 255 bytes or beyond ASCII, integers beyond 2^63 - 1. Somebody else then has
// to look at it.
class FlatMap {
 public:
  explicit FlatMap(std::span<const unsigned char> data);

  // The next entry; false when there is none, or it cannot be read.
  bool next(std::string_view& key, Value& value);

  // Whether all entries have been read, and nothing follows them.
  bool is_whole() const { return !gave_up_ && entries_ == 0 && at_ == data_.size(); }

 private:
  std::optional<std::uint64_t> big_endian(std::size_t size);
  bool text(std::size_t size, std::string_view& found);
  bool read(Value& value);
  bool read_number(unsigned char tag, Value& value);

  std::span<const unsigned char> data_;
  std::size_t at_ = 0;
  std::size_t entries_ = 0;  // left
  bool gave_up_ = false;
};

}  // namespace wavefront::wire
