// SPDX-License-Identifier: GPL-3.0-or-later
// A table's values, one after the other by position number, in compressed form.
//
// The values are cut into blocks of equal size in bytes, each of which holds as many values as fit. A block
// is a canonical Huffman code over symbols, and a symbol is either one value or a pair of symbols (recursive
// pairing), so that a few bits can stand for thousands of values. To find a number's block there are the
// counts of values of all blocks, and samples: for the middle of every span of numbers, its block and its
// place there.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "syzygy/byte_reader.h"

namespace wavefront::syzygy {

class CompressedValues {
 public:
  // Reads the header; `size` values follow. The rest of a file comes in sections, each for all of its value
  // lists: read_samples, read_lengths, read_blocks, in this order. All throw DamagedTable.
  CompressedValues(ByteReader& reader, uint64_t size, bool is_wdl);
  void read_samples(ByteReader& reader);
  void read_lengths(ByteReader& reader);
  void read_blocks(ByteReader& reader);

  // The header's first byte: what it says besides belongs to the table.
  uint8_t flags() const { return flags_; }

  // The value of a position number less than the size; nothing if the data is damaged there.
  std::optional<int> at(uint64_t number) const;

 private:
  static constexpr uint8_t kSingleValue = 0x80;

  struct Symbol {
    uint16_t left;    // the value, if it is one
    uint16_t right;   // kValue, if it is one
    uint32_t values;  // how many it stands for
  };
  static constexpr uint16_t kValue = 0xFFF;
  static constexpr uint32_t kMostValues = 0x10000;  // of a block, as its count is stored less one in 16 bits

  void read_code(ByteReader& reader);
  void read_symbols(ByteReader& reader);
  uint32_t count_values(size_t symbol, std::vector<bool>& entered);
  uint32_t values_of_block(uint32_t block) const { return read_u16(lengths_ + 2 * size_t{block}) + 1u; }
  std::optional<int> decode(uint32_t block, uint32_t place) const;

  uint8_t flags_;
  int only_value_ = 0;  // where kSingleValue is set, and nothing else is there
  uint64_t size_;
  int block_bits_ = 0;  // of its size in bytes
  int span_bits_ = 0;
  uint32_t blocks_ = 0;
  uint32_t lengths_count_ = 0;  // more than there are blocks: the last samples may look past the end

  // The code: words of shortest_ bits and more. Left-aligned, those of a length are not less than its first.
  int shortest_ = 0;
  std::vector<uint64_t> first_word_;
  std::vector<uint16_t> first_symbol_;
  std::vector<Symbol> symbols_;

  const uint8_t* samples_ = nullptr;
  const uint8_t* lengths_ = nullptr;
  const uint8_t* data_ = nullptr;
};

}  // namespace wavefront::syzygy
