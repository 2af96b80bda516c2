// SPDX-License-Identifier: GPL-3.0-or-later
// Errors of the network, pooled by the last move: KataGo's "subtree value bias", a relative of Stockfish's
// correction history.
//
// Once a position was searched, the network's error there is known: the mean value of its moves, less the
// network's value. Positions after the same move share an entry of a table, with the weighted mean of their
// errors, which is added to the network's value of a new position.
//
// A node's record, before its edges, holds what it adds to its entry now, so that this can be replaced or
// removed. Sums are integers: removing is exact.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "chess/history.h"
#include "tree/node.h"

namespace wavefront::tree {

struct BiasEntry {
  int64_t sum = 0;  // of delta * weight
  int64_t weight = 0;
  bool operator==(const BiasEntry&) const = default;

  // Adds a record; with the sign -1 it is removed.
  void add(const BiasRecord& record, int sign);
};
inline constexpr size_t kBiasSlots = size_t{1} << 16;

// Returns the entry of the history's current position: by the side to move, and by what the last move moved
// and captured, from where to where.
uint16_t bias_slot(const chess::History& history);

// Steps of visits by factors of the square root of 2: 0, 1, 2, 3, 4, 6, 8, 12 ... begin new ones.
inline uint32_t bias_step(uint32_t visits) {
  return static_cast<uint32_t>(std::bit_width(static_cast<uint64_t>(visits) * visits));
}

}  // namespace wavefront::tree
