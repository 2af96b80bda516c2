// SPDX-License-Identifier: GPL-3.0-or-later
#include "header/flat_map.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace wavefront::wire {

namespace {

constexpr unsigned char kFixMap = 0x80, kFixText = 0xA0, kNegative = 0xE0;

constexpr unsigned char kNil = 0xC0, kFalse = 0xC2, kTrue = 0xC3, kFloat32 = 0xCA, kFloat64 = 0xCB,
                        kUnsigned8 = 0xCC, kUnsigned64 = 0xCF, kSigned8 = 0xD0, kSigned64 = 0xD3,
                        kText8 = 0xD9;

}  // namespace

FlatMap::FlatMap(std::span<const unsigned char> data) : data_(data) {
  if (data.empty() || (data[0] & 0xF0) != kFixMap) {
    gave_up_ = true;
    return;
  }
  entries_ = data[0] & 0x0F;
  at_ = 1;
}

bool FlatMap::next(std::string_view& key, Value& value) {
  if (gave_up_ || entries_ == 0) return false;
  Value name;
  if (!read(name) || name.kind != Value::Kind::kText || !read(value)) {
    gave_up_ = true;
    return false;
  }
  key = name.text;
  --entries_;
  return true;
}

std::optional<std::uint64_t> FlatMap::big_endian(std::size_t size) {
  if (data_.size() - at_ < size) return std::nullopt;
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < size; ++i) number = number << 8 | data_[at_++];
  return number;
}

bool FlatMap::text(std::size_t size, std::string_view& found) {
  if (data_.size() - at_ < size) return false;
  found = {reinterpret_cast<const char*>(data_.data()) + at_, size};
  at_ += size;
  return std::none_of(found.begin(), found.end(), [](char each) { return (each & 0x80) != 0; });
}

bool FlatMap::read(Value& value) {
  if (at_ == data_.size()) return false;
  const unsigned char tag = data_[at_++];
  value = {};
  if (tag == kNil) return true;
  if (tag == kFalse || tag == kTrue) {
    value.kind = Value::Kind::kOther;
    return true;
  }
  if ((tag & 0xE0) == kFixText) {
    value.kind = Value::Kind::kText;
    return text(tag & 0x1F, value.text);
  }
  if (tag == kText8) {
    value.kind = Value::Kind::kText;
    const auto size = big_endian(1);
    return size && text(*size, value.text);
  }
  return read_number(tag, value);
}

bool FlatMap::read_number(unsigned char tag, Value& value) {
  if (tag == kFloat32 || tag == kFloat64) {
    const auto bits = big_endian(tag == kFloat32 ? 4 : 8);
    if (!bits) return false;
    value.kind = Value::Kind::kFloat;
    value.number = tag == kFloat32 ? std::bit_cast<float>(static_cast<std::uint32_t>(*bits))
                                   : std::bit_cast<double>(*bits);
    return true;
  }
  if (tag < kFixMap) {
    value.integer = tag;
  } else if (tag >= kNegative) {
    value.integer = static_cast<std::int8_t>(tag);
  } else if (tag >= kUnsigned8 && tag <= kUnsigned64) {
    const auto found = big_endian(std::size_t{1} << (tag - kUnsigned8));
    if (!found || *found > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return false;
    value.integer = static_cast<std::int64_t>(*found);
  } else if (tag >= kSigned8 && tag <= kSigned64) {
    const std::size_t size = std::size_t{1} << (tag - kSigned8);
    const auto found = big_endian(size);
    if (!found) return false;
    const std::size_t unused = 64 - 8 * size;
    value.integer = static_cast<std::int64_t>(*found << unused) >> unused;
  } else {
    return false;
  }
  value.kind = Value::Kind::kInteger;
  value.number = static_cast<double>(value.integer);
  return true;
}

}  // namespace wavefront::wire
