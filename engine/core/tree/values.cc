// SPDX-License-Identifier: GPL-3.0-or-later
// Values that differ from the mean of a node's visits.
//
// A search may limit a node's value by its proven bounds: a player who can force a draw has at least a draw.
// The value is then the limit, not the mean of the visits.
//
// Such a value follows from the children, not from the sum of backed-up values. So the nodes of a path
// recompute it and pass the difference upwards.

#include <algorithm>

#include "tree/spread.h"
#include "tree/tree.h"

namespace wavefront::tree {

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

// Recomputes the value of an unproven node with a known draw from its children, after changes of its visits
// or theirs. Returns the change of its sum.
double Tree::adjust(Node& parent) const {
  return has_known_draw(parent) ? derive_value(parent) : 0.0;
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

// Returns the value for the side that moved into the node; nothing if some of its visits are not its
// children's, as after pruning.
std::optional<double> Tree::value_by_children(const Node& parent) const {
  uint32_t others = parent.visits;
  double sum = parent.own_q();
  for (int i = 0; i < parent.child_slots; ++i) {
    const ArenaIndex index = children_of(parent)[i];
    if (index == kNone) continue;
    others -= node(index)->visits;
    sum += node(index)->wl_sum;
  }
  if (others != 1) return std::nullopt;
  return -sum / parent.visits;
}

// Recomputes a node's spread from its children, after most of its visits may have been removed: the 16 bits
// for many visits are too coarse for the few left. Does nothing if some visits are not its children's.
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

// Updates can_repeat and the node's value after a child may no longer be a draw by repetition.
void Tree::note_repetitions(Node& parent) const {
  parent.bounds.can_repeat = 0;
  for (int i = 0; params_.known_draws == KnownDraws::kRepetition && i < parent.child_slots; ++i) {
    const ArenaIndex child = children_of(parent)[i];
    if (child != kNone && node(child)->state == NodeState::kTwoFold) parent.bounds.can_repeat = 1;
  }
  derive_value(parent);
}

}  // namespace wavefront::tree
