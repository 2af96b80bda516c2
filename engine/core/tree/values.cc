// SPDX-License-Identifier: GPL-3.0-or-later
// Values that are more than the mean of a node's visits.
//
// A search may limit a node's value to what is proven of it: a player who can have a draw has at least that,
// and does not play on for less. Its value is then the limit, not the mean of what the visits brought.
//
// And it may prune noise: visits that looked at moves of little prior and found them bad say little of a
// position in which they will not be played. In the order of the priors each move is held against those
// before it. Where it has more visits than twice its prior's share of theirs and less value than their mean,
// the more visits are taken for exploration and count the less the worse they are. KataGo does so with its
// `useNoisePruning` (github.com/lightvector/KataGo).
//
// Such a value follows from the children, not from the sum of what has come up, so it is derived anew at the
// nodes of a path. What it differs by from the sum is what goes on to the nodes above. A limit holds at once.
// Noise may wait: to look at all moves of all nodes for each visit would take as long as the rest of the
// search, so a node is looked at as its visits grow by a sixteenth to an eighth, and those between count in
// full till then.

#include <algorithm>
#include <bit>
#include <cmath>

#include "tree/spread.h"
#include "tree/tree.h"

namespace wavefront::tree {
namespace {

// A move may have so many times its prior's share of the visits before any are taken for exploration.
constexpr double kLeniency = 2.0;

// Noise is looked at when one of so many leading bits of a node's visits changes.
constexpr int kBitsLookedAt = 4;

}  // namespace

bool Tree::has_known_draw(const Node& parent) const {
  switch (params_.known_draws) {
    case KnownDraws::kOff:
      return false;
    case KnownDraws::kProven:
      return parent.bounds.lower == 0 || parent.bounds.upper == 0;
    case KnownDraws::kRepetition:
      return parent.bounds.lower == 0 || parent.bounds.upper == 0 || parent.bounds.can_repeat;
  }
  return false;
}

// Whether a node is to be evaluated again after the last `added` of its visits.
bool Tree::is_due(const Node& visited, uint32_t added) const {
  if (has_known_draw(visited)) return true;
  const uint32_t before = visited.visits - added;
  const int unit = std::max(0, static_cast<int>(std::bit_width(before)) - kBitsLookedAt);
  return before >> unit != visited.visits >> unit;
}

// Gives a node that is not proven the value that follows from its children, after its visits or theirs have
// changed. Returns what its sum has changed by.
double Tree::adjust(Node& parent) const {
  if (!has_known_draw(parent) && params_.noise_pruning_scale <= 0.0f) return 0.0;
  return derive_value(parent);
}

double Tree::derive_value(Node& parent) const {
  if (parent.state != NodeState::kExpanded || parent.bounds.proven() || parent.visits == 0) return 0.0;
  const double before = parent.wl_sum;
  double q = value_by_children(parent).value_or(before / parent.visits);
  if (has_known_draw(parent)) {
    const int upper = parent.bounds.can_repeat ? std::min<int>(parent.bounds.upper, 0) : parent.bounds.upper;
    q = std::clamp<double>(q, parent.bounds.lower, std::max<int>(parent.bounds.lower, upper));
  }
  parent.wl_sum = q * parent.visits;
  return parent.wl_sum - before;
}

// From the view of the side that moved into the node. Nothing where some of its visits are not its
// children's, as after those have been pruned for their memory.
std::optional<double> Tree::value_by_children(const Node& parent) const {
  const double scale = params_.noise_pruning_scale;
  const Edge* edges = arena_.at<Edge>(parent.edges);
  uint32_t others = parent.visits;
  double sum = 0.0, weights = 0.0, policy = 0.0;  // of the children so far
  for (int i = 0; i < parent.child_slots; ++i) {
    const ArenaIndex index = children_of(parent)[i];
    if (index == kNone || node(index)->visits == 0) continue;
    const Node& child = *node(index);
    others -= child.visits;
    const double q = child.wl_sum / child.visits, prior = edges[i].prior();
    double weight = child.visits;
    if (scale > 0.0 && policy > 0.0) {
      const double gap = sum / weights - q;
      const double excess = weight - kLeniency * weights * prior / policy;
      if (gap > 0.0 && excess > 0.0) weight -= excess * (1.0 - std::exp(-gap / scale));
    }
    sum += weight * q;
    weights += weight;
    policy += prior;
  }
  if (others != 1) return std::nullopt;
  return -(parent.own_q() + sum) / (1.0 + weights);
}

// The spread around a node's value from the children's, after most of its visits may have been taken. Of many
// visits 16 bits do not tell what the few left had. Nothing is done where some visits are not the children's.
void Tree::derive_spread(Node& parent) const {
  if (parent.state != NodeState::kExpanded || parent.visits == 0) return;
  uint32_t others = parent.visits;
  double sum = 0.0, squares = 0.0;
  for (int i = 0; i < parent.child_slots; ++i) {
    const ArenaIndex index = children_of(parent)[i];
    if (index == kNone) continue;
    others -= node(index)->visits;
    sum -= node(index)->wl_sum;
    squares += sum_of_squares(*node(index));
  }
  if (others != 1) return;
  const double first = params_.adjusts_values() ? -parent.own_q() : parent.wl_sum - sum;
  const double q = parent.wl_sum / parent.visits;
  sum += first;
  squares += first * first;
  set_variance(parent, (squares - 2 * q * sum) / parent.visits + q * q);
}

// When a child may not be a draw by repetition any more: looks whether the side to move still has one, and
// what the node is worth then.
void Tree::note_repetitions(Node& parent) const {
  parent.bounds.can_repeat = 0;
  for (int i = 0; params_.known_draws == KnownDraws::kRepetition && i < parent.child_slots; ++i) {
    const ArenaIndex child = children_of(parent)[i];
    if (child != kNone && node(child)->state == NodeState::kTwoFold) parent.bounds.can_repeat = 1;
  }
  derive_value(parent);
}

}  // namespace wavefront::tree
