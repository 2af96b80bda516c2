// SPDX-License-Identifier: GPL-3.0-or-later
// Backup: applying a batch, backing up values, proving results.

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "tree/priors.h"
#include "tree/spread.h"
#include "tree/tree.h"
#include "tree/wdl_rescale.h"

namespace wavefront::tree {

// Leaves by which the CPU fetches the cache's memory ahead of its use.
constexpr size_t kFetchedBefore = 4;

void Tree::apply(Batch& batch, std::span<const float> logits, std::span<const float> wdl,
                 std::span<const float> moves_left) {
  std::lock_guard lock(mutex_);
  if (batch.tree_ != this) throw std::logic_error("the batch was not collected from this tree");
  const size_t count = batch.leaves_.size();
  if (logits.size() != batch.policy_indices_.size() || wdl.size() != 3 * count ||
      moves_left.size() != count) {
    throw std::invalid_argument("the evaluations do not have the batch's size");
  }
  // NaN and infinity times 0 are NaN, and make the sum NaN.
  auto is_finite = [](std::span<const float> values) {
    float sum = 0.0f;
    for (float value : values) sum += value * 0.0f;
    return sum == 0.0f;
  };
  if (!is_finite(logits) || !is_finite(wdl) || !is_finite(moves_left)) {
    throw std::invalid_argument("the evaluations contain NaN or infinity");
  }

  const Color root_side = history_.current().side_to_move();
  for (size_t i = 0; i < count; ++i) {
    const Batch::Leaf& leaf = batch.leaves_[i];
    if (i + kFetchedBefore < count) cache_.prefetch(batch.leaves_[i + kFetchedBefore].cache_key);
    const auto path = batch.path(leaf.path_offset, leaf.path_length);
    const auto moves = batch.moves_of(static_cast<int>(i));
    const Value value{wdl[3 * i] - wdl[3 * i + 2], wdl[3 * i + 1], moves_left[i]};
    const bool is_awaited = !batch.late_ && (i < batch.wanted_ || forget_ahead(path));
    const ArenaIndex edges = is_awaited ? new_edges(moves.size()) : kNone;
    priors_.resize(moves.size());
    softmax_priors(logits.subspan(batch.offsets_[i], moves.size()), params_.policy_temperature, priors_);
    if (!batch.late_ || batch.cache_generation_ == cache_generation_) {
      cache_.insert(leaf.cache_key, value, priors_);
    }
    if (!is_awaited) continue;

    Node& evaluated = *node(path.back());
    give_edges(evaluated, edges, moves, priors_);
    const Color side = leaf.path_length % 2 == 1 ? root_side : ~root_side;
    Value used = rescaled(value, side, params_);
    if (params_.corrects_values()) used = corrected(evaluated, leaf.bias_slot, used.q, used, true);
    evaluated.set_own_q(params_.adjusts_values() ? used.q : value.q);
    back_up(path, {-used.q, used.d, used.m}, 1);
    if (path.back() == graft_.anchor) attach_graft();
  }
  finish(batch);
}

void Tree::cancel(Batch& batch) {
  std::lock_guard lock(mutex_);
  if (batch.tree_ != this) throw std::logic_error("the batch was not collected from this tree");
  if (!batch.late_) take_back_all(batch);
  finish(batch);
}

void Tree::abandon(Batch& batch) {
  std::lock_guard lock(mutex_);
  if (batch.tree_ != this) throw std::logic_error("the batch was not collected from this tree");
  if (batch.late_) return;
  take_back_all(batch);
  land(batch);
  batch.late_ = true;
  batch.cache_generation_ = cache_generation_;
}

// Resets the last node of a path, and its visit in flight.
void Tree::take_back(std::span<const ArenaIndex> path) {
  node(path.back())->state = NodeState::kNew;
  for (ArenaIndex index : path) --node(index)->in_flight;
}

void Tree::take_back_all(const Batch& batch) {
  for (size_t i = 0; i < batch.leaves_.size(); ++i) {
    const Batch::Leaf& leaf = batch.leaves_[i];
    const auto path = batch.path(leaf.path_offset, leaf.path_length);
    if (i < batch.wanted_ || forget_ahead(path)) take_back(path);
  }
}

// Ends the look-ahead to the last node of a path: its evaluation has arrived or will not come. Returns true
// if a visit in flight waits for it; otherwise the node is reset.
bool Tree::forget_ahead(std::span<const ArenaIndex> path) {
  for (ArenaIndex index : path) --node(index)->ahead;
  Node& leaf = *node(path.back());
  if (leaf.state == NodeState::kPending) {
    --promoted_;
    return true;
  }
  leaf.state = NodeState::kNew;
  return false;
}

// Removes the batch and the visits of its collisions from flight.
void Tree::land(Batch& batch) {
  for (const Batch::Collision& collision : batch.collisions_) withdraw(batch, collision);
  --batches_in_flight_;
}

void Tree::withdraw(const Batch& batch, const Batch::Collision& collision) {
  for (ArenaIndex index : batch.path(collision.path_offset, collision.path_length)) {
    node(index)->in_flight -= collision.visits;
  }
}

// Empties the batch after its last use.
void Tree::finish(Batch& batch) {
  if (!batch.late_) land(batch);
  batch.clear();
}

// Expands a node. Without memory for its edges it is reset, and the next visit retries.
void Tree::give_edges(Node& leaf, ArenaIndex edges, std::span<const Move> moves,
                      std::span<const uint16_t> priors) {
  if (edges == kNone) {
    leaf.state = NodeState::kNew;
    return;
  }
  sort_edges(moves, priors, arena_.at<Edge>(edges));
  leaf.edges = edges;
  leaf.edge_count = static_cast<uint8_t>(moves.size());
  leaf.state = NodeState::kExpanded;
  bias_record(leaf) = BiasRecord();
  if (&leaf == node(root_)) {
    update_root_edges();
    mix_root_noise();
  }
}

// Completes `visits` visits in flight along a path. value: for the side that moved into the last node.
void Tree::back_up(std::span<const ArenaIndex> path, Value value, uint32_t visits) {
  const bool keeps_spread = params_.keeps_spread(), adjusts = params_.adjusts_values();
  const bool corrects = params_.corrects_values();
  double q = value.q, d = value.d, m = value.m;
  double gain = q * visits;  // change of the node's sum
  for (size_t i = path.size(); i-- > 0;) {
    Node& current = *node(path[i]);
    if (current.bounds.proven() && current.state == NodeState::kExpanded) {
      // Late results do not change proven values.
      q = current.bounds.lower;
      gain = q * visits;
      d = current.bounds.lower == 0 ? 1.0 : 0.0;
      m = current.m;
    }
    const double variance = keeps_spread ? variance_with(current, q, visits) : 0.0;
    current.visits += visits;
    current.in_flight -= visits;
    current.wl_sum += gain;
    if (keeps_spread) set_variance(current, variance);
    if (adjusts && i + 1 < path.size()) gain += adjust(current);
    if (corrects && visits < current.visits &&
        bias_step(current.visits - 1) != bias_step(current.visits - visits - 1)) {
      note_bias(current);
    }
    const double share = static_cast<double>(visits) / current.visits;
    current.d += static_cast<float>((d - current.d) * share);
    current.m += static_cast<float>((m - current.m) * share);
    q = -q;
    gain = -gain;
    m += 1.0;
  }
  playouts_ += visits;
  depth_sum_ += static_cast<uint64_t>(visits) * path.size();
  max_depth_ = std::max(max_depth_, static_cast<uint32_t>(path.size()));
  value_sum_ += q * visits;
  value_square_sum_ += q * q * visits;
}

// Propagates the proof of the last node of the path upwards. The exact value replaces the statistics of
// proven nodes, and their shares in those above. Visits that were in flight when a node was proven may find a
// shorter mate below it, which changes its length.
void Tree::prove(std::span<const ArenaIndex> path) {
  for (size_t i = path.size() - 1; i-- > 0;) {
    Node& parent = *node(path[i]);
    const Node before = parent;
    if (!tighten(parent)) return;
    if (params_.corrects_values() && parent.bounds.proven()) forget_bias(parent);
    if (params_.adjusts_values()) adjust(parent);
    tell_above(path.first(i), before, parent);
  }
}

// Updates the statistics of the path after those of the next node have changed, but not its visits.
void Tree::tell_above(std::span<const ArenaIndex> path, const Node& before, const Node& changed) {
  const bool keeps_spread = params_.keeps_spread(), adjusts = params_.adjusts_values();
  const double more_squares = keeps_spread ? sum_of_squares(changed) - sum_of_squares(before) : 0.0;
  double gain = changed.wl_sum - before.wl_sum;
  for (size_t above = path.size(); above-- > 0;) {
    Node& ancestor = *node(path[above]);
    if (ancestor.bounds.proven()) return;  // Its statistics are exact, also in those above.
    gain = -gain;
    const double squares = keeps_spread ? sum_of_squares(ancestor) + more_squares : 0.0;
    ancestor.wl_sum += gain;
    if (keeps_spread) set_sum_of_squares(ancestor, squares);
    if (adjusts) gain += adjust(ancestor);
    const float share = static_cast<float>(changed.visits) / static_cast<float>(ancestor.visits);
    // Clamp rounding errors if all of a mean is removed.
    ancestor.d = std::clamp(ancestor.d + (changed.d - before.d) * share, 0.0f, 1.0f);
    ancestor.m = std::max(0.0f, ancestor.m + (changed.m - before.m) * share);
  }
}

// Takes back a draw by a repetition whose first occurrence, once in the searched line, is now part of the
// game. Its visits leave the tree, and the position, the last of the path, is searched again.
void Tree::undo_two_fold(std::span<const ArenaIndex> path) {
  Node& repeated = *node(path.back());
  const Node before = repeated;
  repeated.wl_sum = 0;
  repeated.visits = 0;
  repeated.d = repeated.m = 0;
  repeated.edges = kNone;
  repeated.state = NodeState::kNew;
  repeated.spread = 0;
  account_above(path, before);
}

// Updates the nodes of a path after the visits and values of the last one have changed. before: the last one
// as it was.
void Tree::account_above(std::span<const ArenaIndex> path, Node before) {
  for (size_t i = path.size() - 1; i-- > 0;) {
    Node& parent = *node(path[i]);
    const Node parent_before = parent;
    account_for_change(parent, before, *node(path[i + 1]));
    if (params_.corrects_values()) note_bias(parent);
    if (params_.adjusts_values() && i + 2 == path.size()) note_repetitions(parent);
    before = parent_before;
  }
}

// Replaces a child's old visits and values in its parent by the current ones.
void Tree::account_for_change(Node& parent, const Node& before, const Node& child) const {
  const auto was = static_cast<double>(before.visits), is = static_cast<double>(child.visits);
  const auto old_visits = static_cast<double>(parent.visits);
  const double squares =
      params_.keeps_spread() ? sum_of_squares(parent) - sum_of_squares(before) + sum_of_squares(child) : 0.0;
  parent.visits += child.visits - before.visits;  // may decrease: modulo 2^32
  const auto new_visits = std::max(1.0, static_cast<double>(parent.visits));
  if (parent.bounds.proven()) {
    parent.wl_sum = parent.bounds.lower * static_cast<double>(parent.visits);
    parent.spread = 0;
    return;
  }
  const double d = parent.d * old_visits - before.d * was + child.d * is;
  const double m = parent.m * old_visits - (before.m + 1.0) * was + (child.m + 1.0) * is;
  parent.wl_sum += before.wl_sum - child.wl_sum;
  // Clamp, because removing most of a single-precision mean causes rounding errors.
  parent.d = static_cast<float>(std::clamp(d / new_visits, 0.0, 1.0));
  parent.m = static_cast<float>(std::max(0.0, m / new_visits));
  if (params_.keeps_spread()) set_sum_of_squares(parent, squares);
  if (params_.adjusts_values()) adjust(parent);
  if (params_.keeps_spread()) derive_spread(parent);
}

// Derives a node's bounds, and the length of a proven result, from its children. Returns true if they
// changed.
bool Tree::tighten(Node& parent) const {
  if (parent.state != NodeState::kExpanded) return false;
  int lower = -1, upper = -1;  // for the side to move
  float quickest = 1e9f, longest = 0.0f;
  for (int i = 0; i < parent.edge_count; ++i) {
    const ArenaIndex index = i < parent.child_slots ? children_of(parent)[i] : kNone;
    const Node* child = index == kNone ? nullptr : node(index);
    const Bounds bounds = child == nullptr ? Bounds::unknown() : child->bounds;
    lower = std::max<int>(lower, bounds.lower);
    upper = std::max<int>(upper, bounds.upper);
    if (child == nullptr || child->visits == 0 || !bounds.proven()) continue;
    if (bounds.lower == 1) quickest = std::min(quickest, child->proven_plies());
    longest = std::max(longest, child->proven_plies());
  }
  // Keep old bounds, because they may come from moves that were pruned since.
  Bounds bounds{std::max<int8_t>(parent.bounds.lower, static_cast<int8_t>(-upper)),
                std::min<int8_t>(parent.bounds.upper, static_cast<int8_t>(-lower)), 0,
                parent.bounds.can_repeat};
  const float plies = lower == 1 ? quickest : longest;
  const bool beyond_mates = plies >= kBeyondMates;
  bounds.by_tables = bounds.proven() && bounds.lower != 0 && beyond_mates;
  if (parent.bounds.proven()) {
    const bool follows = lower == upper && lower != 0;  // from the remaining children
    if (!follows || plies + 1.0f >= parent.proven_plies()) return false;
  } else if (bounds == parent.bounds) {
    return false;
  }
  parent.bounds = bounds;
  if (bounds.proven()) {
    parent.wl_sum = bounds.lower * static_cast<double>(parent.visits);
    parent.d = bounds.lower == 0 ? 1.0f : 0.0f;
    parent.m = 1.0f + (beyond_mates ? plies - kBeyondMates : plies);
    parent.spread = 0;
  }
  return true;
}

}  // namespace wavefront::tree
