// SPDX-License-Identifier: GPL-3.0-or-later
// A batch of leaves for the evaluator: the data to send, and the paths for the results.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

#include "chess/history.h"
#include "chess/move.h"
#include "encoding/encoder.h"
#include "tree/arena.h"
#include "tree/bias.h"

namespace wavefront::tree {

using namespace chess;
using namespace encoding;

class Batch {
 public:
  // Throws std::invalid_argument unless 1 <= capacity <= 65536.
  explicit Batch(int capacity) : capacity_(capacity) {
    if (capacity < 1 || capacity > 65536) throw std::invalid_argument("a batch holds 1 to 65536 positions");
    positions_ = std::make_unique_for_overwrite<EncodedPosition[]>(capacity);
    offsets_.reserve(capacity + 1);
    clear();
  }

  int capacity() const { return capacity_; }
  int size() const { return static_cast<int>(leaves_.size()); }
  int wanted() const { return static_cast<int>(wanted_); }

  // The data for the evaluator: positions [size], offsets [size + 1], policy indices of the legal moves.
  std::span<const EncodedPosition> positions() const { return {positions_.get(), leaves_.size()}; }
  std::span<const uint32_t> move_offsets() const { return offsets_; }
  std::span<const uint16_t> policy_indices() const { return policy_indices_; }

 private:
  friend class Tree;

  struct Leaf {
    uint32_t path_offset;
    uint32_t path_length;  // nodes from the root to the leaf, both included
    uint64_t cache_key;
    uint16_t bias_slot;
  };
  // Visits that met a position in flight. Only their in-flight counts must be undone.
  struct Collision {
    uint32_t path_offset;
    uint32_t path_length;
    uint32_t visits;
  };

  void clear() {
    leaves_.clear();
    wanted_ = 0;
    collisions_.clear();
    paths_.clear();
    moves_.clear();
    policy_indices_.clear();
    offsets_.assign(1, 0);
    tree_ = nullptr;
    late_ = false;
  }
  uint32_t keep_path(std::span<const ArenaIndex> path) {
    auto offset = static_cast<uint32_t>(paths_.size());
    paths_.insert(paths_.end(), path.begin(), path.end());
    return offset;
  }
  std::span<const ArenaIndex> path(uint32_t offset, uint32_t length) const {
    return std::span(paths_).subspan(offset, length);
  }
  std::span<const Move> moves_of(int leaf) const {
    return std::span(moves_).subspan(offsets_[leaf], offsets_[leaf + 1] - offsets_[leaf]);
  }

  int capacity_;
  const void* tree_ = nullptr;  // the tree that it was collected from; null once it was applied or cancelled
  bool late_ = false;           // abandoned: its evaluations only go to the cache
  uint64_t cache_generation_ = 0;  // of the tree when the batch was abandoned
  // Not a vector, which would be zeroed: each search creates its batches, and fills few of them.
  std::unique_ptr<EncodedPosition[]> positions_;
  std::vector<uint32_t> offsets_;
  std::vector<uint16_t> policy_indices_;
  std::vector<Move> moves_;
  std::vector<Leaf> leaves_;
  size_t wanted_ = 0;  // leaves that get a visit; the following ones are look-ahead
  std::vector<Collision> collisions_;
  std::vector<ArenaIndex> paths_;
};

}  // namespace wavefront::tree
