// SPDX-License-Identifier: GPL-3.0-or-later
// Positions per request of a search, from the size of its tree and the positions in flight.
// engine/search/loop/batching.py creates the rules, and has the reasons and the figures.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace wavefront::exchange {

// The next batch: positions that get a visit (0: no batch), and look-ahead positions.
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

  // Size of the largest batch.
  int capacity() const;

  // The batch size for a tree with N visits.
  int in_tree(std::int64_t visits) const;

  // Positions to request next, look-ahead excluded; 0 or less: more would weaken the search.
  // visits_in_flight: visits waiting for their evaluations.
  int wanted(std::int64_t visits, std::int64_t visits_in_flight) const;

  // The largest batch that is computed in this time; at least 1.
  int fitting(double milliseconds) const;

  // The next batch. in_time: the largest batch that is computed before the search must end.
  Asked next(std::int64_t visits, std::int64_t visits_in_flight, std::int64_t in_time) const;
};

}  // namespace wavefront::exchange
