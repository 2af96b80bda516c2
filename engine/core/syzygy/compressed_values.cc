// SPDX-License-Identifier: GPL-3.0-or-later
#include "syzygy/compressed_values.h"

namespace wavefront::syzygy {
namespace {

constexpr int kLongestWord = 32;  // bits; the window below always has at least this many
constexpr size_t kSampleBytes = 6;

// The bits of a block, highest first, in a window of 64. Bits past the end are zeros, and set `overrun`.
class BitWindow {
 public:
  BitWindow(const uint8_t* begin, const uint8_t* end) : next_(begin), end_(end) { refill(); }

  uint64_t bits() const { return bits_; }
  void drop(int count) {
    bits_ <<= count;
    filled_ -= count;
    if (filled_ < kLongestWord) refill();
  }
  // True if bits past the end were dropped.
  bool overrun() const { return filled_ < 0; }

 private:
  void refill() {
    while (filled_ <= 32 && filled_ >= 0 && end_ - next_ >= 4) {
      const uint32_t word = static_cast<uint32_t>(next_[0]) << 24 | static_cast<uint32_t>(next_[1]) << 16 |
                            static_cast<uint32_t>(next_[2]) << 8 | next_[3];
      bits_ |= static_cast<uint64_t>(word) << (32 - filled_);
      filled_ += 32;
      next_ += 4;
    }
  }

  const uint8_t* next_;
  const uint8_t* end_;
  uint64_t bits_ = 0;
  int filled_ = 0;
};

}  // namespace

CompressedValues::CompressedValues(ByteReader& reader, uint64_t size, bool is_wdl)
    : flags_(reader.u8()), size_(size) {
  const uint8_t second = reader.u8();
  if (flags_ & kSingleValue) {
    only_value_ = is_wdl ? second : 0;
    return;
  }
  block_bits_ = second;
  span_bits_ = reader.u8();
  const uint8_t padding = reader.u8();
  blocks_ = reader.u32();
  if (block_bits_ < 2 || block_bits_ > 24 || span_bits_ < 1 || span_bits_ > 40 || blocks_ == 0 ||
      blocks_ > UINT32_MAX - padding) {
    throw DamagedTable("the sizes of its blocks make no sense");
  }
  lengths_count_ = blocks_ + padding;
  read_code(reader);
  read_symbols(reader);
}

void CompressedValues::read_code(ByteReader& reader) {
  const int longest = reader.u8();
  shortest_ = reader.u8();
  if (shortest_ < 1 || longest < shortest_ || longest > kLongestWord) {
    throw DamagedTable("its code has words of impossible length");
  }
  const auto lengths = static_cast<size_t>(longest - shortest_ + 1);
  for (size_t i = 0; i < lengths; ++i) first_symbol_.push_back(reader.u16());
  // Longer words are smaller. The first word of a length follows from that of the next length and the number
  // of symbols. The next length has twice as many words for the same bits.
  first_word_.assign(lengths, 0);
  for (size_t i = lengths - 1; i-- > 0;) {
    first_word_[i] = (first_word_[i + 1] + first_symbol_[i] - first_symbol_[i + 1]) / 2;
  }
  for (size_t i = 0; i < lengths; ++i) first_word_[i] <<= 64 - shortest_ - static_cast<int>(i);
}

void CompressedValues::read_symbols(ByteReader& reader) {
  const size_t count = reader.u16();
  const uint8_t* packed = reader.take(3 * count + (count & 1));  // two numbers of 12 bits each
  for (size_t i = 0; i < count; ++i, packed += 3) {
    const auto left = static_cast<uint16_t>(packed[0] | (packed[1] & 0x0F) << 8);
    const auto right = static_cast<uint16_t>(packed[1] >> 4 | packed[2] << 4);
    symbols_.push_back({left, right, 0});
  }
  std::vector<bool> entered(count);
  for (size_t i = 0; i < count; ++i) count_values(i, entered);
}

// Fills `values` of a symbol and its parts. The recursion depth is at most the number of symbols, 4095.
uint32_t CompressedValues::count_values(size_t number, std::vector<bool>& entered) {
  if (number >= symbols_.size()) throw DamagedTable("a symbol of its code does not exist");
  Symbol& symbol = symbols_[number];
  if (symbol.values > 0) return symbol.values;
  if (entered[number]) throw DamagedTable("a symbol of its code contains itself");
  entered[number] = true;
  if (symbol.right == kValue) return symbol.values = 1;
  const uint32_t values = count_values(symbol.left, entered) + count_values(symbol.right, entered);
  if (values > kMostValues) throw DamagedTable("a symbol of its code is too long");
  return symbol.values = values;
}

void CompressedValues::read_samples(ByteReader& reader) {
  if (flags_ & kSingleValue) return;
  const uint64_t spans = ((size_ - 1) >> span_bits_) + 1;
  samples_ = reader.take(kSampleBytes * spans);
}

void CompressedValues::read_lengths(ByteReader& reader) {
  if (flags_ & kSingleValue) return;
  lengths_ = reader.take(2 * uint64_t{lengths_count_});
}

void CompressedValues::read_blocks(ByteReader& reader) {
  reader.align(64);
  if (flags_ & kSingleValue) return;
  data_ = reader.take(uint64_t{blocks_} << block_bits_);
}

std::optional<int> CompressedValues::at(uint64_t number) const {
  if (flags_ & kSingleValue) return only_value_;
  const uint8_t* sample = samples_ + kSampleBytes * static_cast<size_t>(number >> span_bits_);
  uint32_t block = read_u32(sample);
  const auto span = int64_t{1} << span_bits_;
  const auto from_middle = static_cast<int64_t>(number & static_cast<uint64_t>(span - 1)) - span / 2;
  int64_t place = read_u16(sample + 4) + from_middle;
  if (block > lengths_count_) return std::nullopt;
  for (; place < 0; place += values_of_block(block)) {
    if (block-- == 0) return std::nullopt;
  }
  while (block < lengths_count_ && place >= values_of_block(block)) place -= values_of_block(block++);
  if (block >= blocks_) return std::nullopt;
  return decode(block, static_cast<uint32_t>(place));
}

// Returns the value at a place in a block.
std::optional<int> CompressedValues::decode(uint32_t block, uint32_t place) const {
  const uint8_t* begin = data_ + (uint64_t{block} << block_bits_);
  BitWindow window(begin, begin + (size_t{1} << block_bits_));
  size_t symbol = 0;
  while (true) {
    size_t longer = 0;
    while (window.bits() < first_word_[longer]) ++longer;  // terminates: the first of the longest words is 0
    const int length = shortest_ + static_cast<int>(longer);
    symbol =
        first_symbol_[longer] + static_cast<size_t>((window.bits() - first_word_[longer]) >> (64 - length));
    window.drop(length);
    if (symbol >= symbols_.size() || window.overrun()) return std::nullopt;
    if (place < symbols_[symbol].values) break;
    place -= symbols_[symbol].values;
  }
  while (symbols_[symbol].right != kValue) {
    const uint32_t in_left = symbols_[symbols_[symbol].left].values;
    if (place < in_left) {
      symbol = symbols_[symbol].left;
    } else {
      place -= in_left;
      symbol = symbols_[symbol].right;
    }
  }
  return symbols_[symbol].left;
}

}  // namespace wavefront::syzygy
