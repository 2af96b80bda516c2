// SPDX-License-Identifier: GPL-3.0-or-later
// The spread of a node's values: the variance of W - L over its visits, in 16 bits of the node. It is 0
// unless PUCT or the choice of the move uses it.
//
// A node with few visits has an uncertain spread, so a prior spread counts as some additional visits. KataGo
// scales its exploration by such a standard deviation (docs/KataGoMethods.md, "Dynamic Variance-Scaled
// cPUCT", of github.com/lightvector/KataGo).
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

// Stores the variance. Multiples of the golden ratio decide the rounding, so that changes of many visits add
// up although each is smaller than the unit.
inline void set_variance(Node& node, double variance) {
  const double threshold = static_cast<double>(node.visits * 0x9E3779B9u) / 4294967296.0;
  node.spread =
      static_cast<uint16_t>(std::clamp(variance, 0.0, 1.0 - 1.0 / kSpreadUnit) * kSpreadUnit + threshold);
}

// Returns a node's variance after `visits` more visits of value q. Call it before the node's visits and sum
// change.
inline double variance_with(const Node& node, double q, uint32_t visits) {
  if (node.visits == 0) return 0.0;
  const double share = static_cast<double>(visits) / (static_cast<double>(node.visits) + visits);
  const double gap = q - node.wl_sum / node.visits;
  return (1.0 - share) * (variance_of(node) + share * gap * gap);
}

// The sum of the squares of W - L over a node's visits, from which the variance follows.
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

// Returns the standard deviation of a node's values, including the prior.
inline float deviation_of(const Node& node, const SearchParams& params) {
  const auto visits = static_cast<float>(node.visits);
  const float prior_visits = params.deviation_prior_visits;
  const float prior = params.deviation_prior * params.deviation_prior;
  const float sum = prior_visits * prior + visits * static_cast<float>(variance_of(node));
  return std::sqrt(sum / std::max(1.0f, prior_visits + visits));
}

// Returns the factor of a node's exploration: 1 at the prior deviation.
inline float exploration_by_deviation(const Node& node, const SearchParams& params) {
  const float ratio = deviation_of(node, params) / params.deviation_prior;
  return 1.0f + params.cpuct_deviation_scale * (ratio - 1.0f);
}

}  // namespace wavefront::tree
