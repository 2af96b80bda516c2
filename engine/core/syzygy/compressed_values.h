// SPDX-License-Identifier: GPL-3.0-or-later
// Decompression of a table's values, which are ordered by position number.
//
// Blocks of equal size in bytes hold as many values as fit. A block has a canonical Huffman code over
// symbols. A symbol is one value or a pair of symbols (recursive pairing), so that a few bits can encode
// thousands of values. To find a number's block, the file has the number of values of each block, and
// samples: for the middle of every span of numbers, its block and its place there.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "syzygy/byte_reader.h"

namespace wavefront::syzygy {

class CompressedValues {
 public:
  // Reads the header of `size` values. The rest of a file has sections, each for all value lists of the file:
  // read_samples, read_lengths, read_blocks, in this order. All throw DamagedTable.
  CompressedValues(ByteReader& reader, uint64_t size, bool is_wdl);
  void read_samples(ByteReader& reader);
  void read_lengths(ByteReader& reader);
  void read_blocks(ByteReader& reader);

  // The header's first byte, whose other bits belong to the table.
  uint8_t flags() const { return flags_; }

  // Returns the value of a position number less than the size; nothing if the data is damaged there.
  std::optional<int> at(uint64_t number) const;

 private:
  static constexpr uint8_t kSingleValue = 0x80;

  struct Symbol {
    uint16_t left;    // the value, if it is a single one
    uint16_t right;   // kValue, if it is a single one
    uint32_t values;  // number of values that it encodes
  };
  static constexpr uint16_t kValue = 0xFFF;
  static constexpr uint32_t kMostValues = 0x10000;  // of a block: 16 bits store the count minus one

  void read_code(ByteReader& reader);
  void read_symbols(ByteReader& reader);
  uint32_t count_values(size_t symbol, std::vector<bool>& entered);
  uint32_t values_of_block(uint32_t block) const { return read_u16(lengths_ + 2 * size_t{block}) + 1u; }
  std::optional<int> decode(uint32_t block, uint32_t place) const;

  uint8_t flags_;
  int only_value_ = 0;  // if kSingleValue is set, instead of all other data
  uint64_t size_;
  int block_bits_ = 0;  // of its size in bytes
  int span_bits_ = 0;
  uint32_t blocks_ = 0;
  uint32_t lengths_count_ = 0;  // more than blocks: the last samples may refer past the end

  // The code: words of at least shortest_ bits. Left-aligned words of a length are at least its first word.
  int shortest_ = 0;
  std::vector<uint64_t> first_word_;
  std::vector<uint16_t> first_symbol_;
  std::vector<Symbol> symbols_;

  const uint8_t* samples_ = nullptr;
  const uint8_t* lengths_ = nullptr;
  const uint8_t* data_ = nullptr;
};

}  // namespace wavefront::syzygy
