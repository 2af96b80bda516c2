// SPDX-License-Identifier: GPL-3.0-or-later
// The cache of network evaluations: a ring of variable-sized records that overwrites the oldest.
//
// A record is a 24-byte header (key, value, number of moves) and the packed priors of the legal moves in
// generation order, padded to 8 bytes: about 96 bytes at 35 moves. An index of offsets, hashed by key in
// buckets of two, finds a record. The bits that an offset leaves hold bits of the key, so that few records of
// other positions are read. The record's key shows if it is still valid. The header may also have the rounded
// value of a search, with its visits rounded down to a power of two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

namespace wavefront::tree {

// q = W - L and d for the side to move, m in plies.
struct Value {
  float q;
  float d;
  float m;
};

// The value of a position after a search, for the side to move. visits: 0 if there was none.
struct SearchedValue {
  float q;
  float d;
  uint32_t visits;
};

class EvaluationCache {
 public:
  // The system allocates memory as the cache fills. bytes: 0 disables the cache.
  explicit EvaluationCache(size_t bytes);

  // Prefetches the memory that `find` reads first.
  void prefetch([[maybe_unused]] uint64_t key) const {
#ifdef __GNUC__
    __builtin_prefetch(bucket(key));
#endif
  }

  // Returns the packed priors (valid until the next insert) and the value of a position with `moves` legal
  // moves, or an empty span if it is not cached.
  std::span<const uint16_t> find(uint64_t key, size_t moves, Value& value) const;

  void insert(uint64_t key, const Value& value, std::span<const uint16_t> priors);

  // Stores the searched value of a cached position, unless one with more visits is stored.
  void note_searched(uint64_t key, size_t moves, const SearchedValue& value);
  // Returns that value, q and d with an error of at most 1 / 1022, visits rounded down to a power of two, at
  // most 32768.
  SearchedValue searched(uint64_t key, size_t moves) const;

  // Discards all searched values, but not the evaluations.
  void forget_searched();

  void clear();
  size_t bytes() const { return capacity_; }

  // Written part of the ring, in thousandths.
  int fill_permille() const;

 private:
  struct Header {
    uint64_t key;
    Value value;
    uint32_t moves : 8;
    uint32_t searched_power : 4;  // binary logarithm of visits; 0: not searched
    uint32_t searched_q : 10;     // (q + 1) / 2 and d in units of 1 / 1023
    uint32_t searched_d : 10;
  };
  static_assert(sizeof(Header) == 24);
  static constexpr size_t kAlign = 8;

  static size_t record_bytes(size_t moves) {
    return (sizeof(Header) + moves * sizeof(uint16_t) + kAlign - 1) / kAlign * kAlign;
  }
  uint32_t* bucket(uint64_t key) const { return index_.get() + (key & index_mask_); }
  // The upper bits of the key, above those of an offset.
  uint32_t tag(uint64_t key) const { return static_cast<uint32_t>(key >> 32) & ~offset_mask_; }
  std::byte* record_of(uint64_t key, size_t moves, Header& header) const;
  Header header_at(size_t offset) const;
  void reserve(size_t bytes);

  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };

  size_t capacity_;  // bytes of the ring
  size_t next_ = 0;
  // Records of the last lap that are not overwritten: from the first intact one to the end of that lap.
  size_t oldest_ = 0;
  size_t lap_end_ = 0;
  bool wrapped_ = false;
  size_t index_mask_;  // even: a bucket starts at an even slot
  std::unique_ptr<std::byte[], Free> ring_;
  uint32_t offset_mask_;
  std::unique_ptr<uint32_t[], Free> index_;  // tag, and offset / 8 + 1 of a record; 0 for none
};

}  // namespace wavefront::tree
