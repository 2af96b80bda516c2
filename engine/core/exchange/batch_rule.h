// SPDX-License-Identifier: GPL-3.0-or-later
// How many positions a search asks for at a time, from the size of its tree and what is in flight. The
// reasons and the figures are those of engine/search/batching.py, which makes the rules.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace wavefront::exchange {

// So small a part of the tree may be in flight whatever its size: large trees then keep a device busy.
inline constexpr std::int64_t kHarmlessShare = 256;

// Positions of the next batch: those that get a visit, none if nothing is to be asked for, and those besides
// that the search looks ahead to.
struct Asked {
  int target = 0;
  int ahead = 0;
};

// See BatchSizes, whose fields these are.
struct BatchRule {
  int best = 1;
  std::vector<std::pair<int, double>> curve;  // batch, milliseconds; ascending
  int largest = 0;
  int filled = 0;
  int large_tree = 1;
  int share = 1;
  int least = 1;
  bool together = false;
  double factor = 0;
  int in_flight = 1;
  int second = 0;

  // Positions that the largest batch has.
  int capacity() const;

  // The batch for a tree with so many visits.
  int in_tree(std::int64_t visits) const;

  // Positions to ask for next, besides those looked ahead to; none or fewer: more would weaken the search.
  // under_way: visits whose evaluations are awaited.
  int wanted(std::int64_t visits, std::int64_t under_way) const;

  // The largest batch that is computed in that time; at least 1.
  int fitting(double milliseconds) const;

  // What to collect next. in_time: the largest batch that comes back before the search must end.
  Asked next(std::int64_t visits, std::int64_t under_way, std::int64_t in_time) const;
};

}  // namespace wavefront::exchange
