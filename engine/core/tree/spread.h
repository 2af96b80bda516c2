// SPDX-License-Identifier: GPL-3.0-or-later
// The spread of a node's values: the variance of W - L over its visits, in the 16 bits that the node has for
// it. Kept where PUCT or the choice of the move asks for it, else 0.
//
// A node with few visits has shown little of its spread, so a prior spread counts as some visits more.
// KataGo scales its exploration by such a deviation (docs/KataGoMethods.md, "Dynamic Variance-Scaled cPUCT",
// of github.com/lightvector/KataGo).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "tree/node.h"
#include "tree/search_params.h"

namespace wavefront::tree {

inline constexpr double kSpreadUnit = 65535.0;

inline double variance_of(const Node& node) {
  return node.spread / kSpreadUnit;
}

// Rounds up or down by where the visits stand in the multiples of the golden ratio, so that the changes of
// many visits add up although each is smaller than the unit.
inline void set_variance(Node& node, double variance) {
  const double threshold = static_cast<double>(node.visits * 0x9E3779B9u) / 4294967296.0;
  node.spread =
      static_cast<uint16_t>(std::clamp(variance, 0.0, 1.0 - 1.0 / kSpreadUnit) * kSpreadUnit + threshold);
}

// Before a node's visits and their sum change: what its variance becomes with visits that all bring the value
// q.
inline double variance_with(const Node& node, double q, uint32_t visits) {
  if (node.visits == 0) return 0.0;
  const double share = static_cast<double>(visits) / (static_cast<double>(node.visits) + visits);
  const double gap = q - node.wl_sum / node.visits;
  return (1.0 - share) * (variance_of(node) + share * gap * gap);
}

// Sum of the squares of W - L over a node's visits, and the variance that follows from it.
inline double sum_of_squares(const Node& node) {
  if (node.visits == 0) return 0.0;
  const double q = node.wl_sum / node.visits;
  return node.visits * (variance_of(node) + q * q);
}
inline void set_sum_of_squares(Node& node, double sum) {
  if (node.visits == 0) {
    node.spread = 0;
    return;
  }
  const double q = node.wl_sum / node.visits;
  set_variance(node, sum / node.visits - q * q);
}

// Standard deviation of a node's values with the prior among them.
inline float deviation_of(const Node& node, const SearchParams& params) {
  const auto visits = static_cast<float>(node.visits);
  const float prior_visits = params.deviation_prior_visits;
  const float prior = params.deviation_prior * params.deviation_prior;
  const float sum = prior_visits * prior + visits * static_cast<float>(variance_of(node));
  return std::sqrt(sum / std::max(1.0f, prior_visits + visits));
}

// What PUCT's exploration of a node is multiplied with: 1 at the prior deviation.
inline float exploration_by_deviation(const Node& node, const SearchParams& params) {
  const float ratio = deviation_of(node, params) / params.deviation_prior;
  return 1.0f + params.cpuct_deviation_scale * (ratio - 1.0f);
}

}  // namespace wavefront::tree
