// SPDX-License-Identifier: GPL-3.0-or-later
// Collecting: walks from the root to positions to evaluate.
//
// One walk carries many visits and splits as PUCT distributes them. So each position on the way is played
// only once. Game ends and cache hits are backed up at once. A visit that meets a position in flight is a
// collision. It stays in flight until the batch returns, which steers other visits elsewhere, and is then
// discarded.
//
// A batch may also look ahead: with its visits in flight, the walks continue to positions that the search
// will probably need next. These walks do not stay in flight, because that would steer the next batch away
// from the most useful positions. Their evaluations go to the cache and count for nothing until a visit
// comes. If it comes while the evaluation is in flight, it waits there (it is promoted).

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>

#include "chess/mix.h"
#include "encoding/policy_index.h"
#include "tree/tree.h"
#include "tree/wdl_rescale.h"

namespace wavefront::tree {
namespace {

// Networks have the clock as input, but it hardly matters far from the 50-move rule: one key for 0..31 plies,
// then one per 8.
uint64_t clock_bucket(int rule50) {
  return rule50 < 32 ? 0 : static_cast<uint64_t>(rule50 / 8);
}

// Maximum collisions per look-ahead position: these walks often meet positions in flight. With 4, batches of
// searches with little exploration stayed half empty.
constexpr int kCollisionsAhead = 16;

// A batch loses at most the square root of the tree's visits, divided by this, to collisions.
// visits_per_collision is stricter up to 29,000 visits; it was measured in such trees, and allows too much in
// larger ones.
constexpr double kRootsPerCollision = 3.0;

// The limit of collisions grows from 1 at the first number of visits of the tree to max_collision_visits at
// the second, as in lc0.
constexpr double kCollisionsStart = 28;
constexpr double kCollisionsEnd = 145000;
constexpr double kCollisionsPower = 1.25;

// A batch is sent once cache hits and game ends have used this many times its size in visits, as in lc0.
constexpr float kOutOfOrderFactor = 2.4f;

// Maximum visits of the root, as in lc0: counts have 32 bits.
constexpr uint32_t kMostVisits = 4'000'000'000;

}  // namespace

CollectResult Tree::collect(Batch& batch, int target, uint64_t max_visits, int ahead) {
  std::lock_guard lock(mutex_);
  if (batch.tree_ != nullptr)
    throw std::logic_error("the batch is still in flight: apply or cancel it first");
  if (target < 1 || ahead < 0 || ahead > batch.capacity() - target) {
    throw std::invalid_argument("the number of positions to collect must be 1 to the batch's capacity");
  }
  keep_room(static_cast<size_t>(target + ahead));
  batch.clear();
  batch.tree_ = this;
  ++batches_in_flight_;

  result_ = {};
  collision_events_ = 0;
  // Earlier look-ahead positions are cache hits now.
  const auto out_of_order_limit =
      static_cast<uint64_t>(kOutOfOrderFactor * static_cast<float>(target + ahead));
  // Of the visits that may still be in flight, a quarter is for positions and one for collisions. The rest is
  // for look-ahead.
  const uint32_t room = (Node::kMostInFlight - node(root_)->in_flight) / 4;
  const uint32_t collision_limit = std::min(collision_visits_limit(), room);
  max_visits = std::min<uint64_t>({max_visits, visits_to_give(), room});
  const auto positions = static_cast<uint32_t>(target);
  uint32_t waiting = 0;  // visits of this batch whose evaluations are in flight
  while (!out_of_memory_ && waiting < positions && result_.visits_done <= out_of_order_limit &&
         result_.collision_visits < collision_limit && collision_events_ < params_.max_collision_events) {
    const uint64_t begun = result_.visits_done + static_cast<uint64_t>(waiting);
    if (begun >= max_visits) break;
    const uint64_t visits = std::min<uint64_t>(
        {positions - waiting, collision_limit - result_.collision_visits, max_visits - begun});
    visit(batch, root_, static_cast<uint32_t>(visits));
    waiting = static_cast<uint32_t>(result_.evaluations) + result_.promoted;
  }
  batch.wanted_ = batch.leaves_.size();
  if (ahead > 0 && waiting > 0) {
    const uint64_t begun = result_.visits_done + static_cast<uint64_t>(waiting);
    look_ahead(batch, static_cast<int>(std::min<uint64_t>(ahead, max_visits - begun)));
  }
  evaluations_ += result_.evaluations;
  batches_ += result_.evaluations > 0;
  cache_hits_ += result_.cache_hits;
  result_.full = full_;
  return result_;
}

// Returns the visits that the root may still get: none if the game is over.
uint32_t Tree::visits_to_give() const {
  const Node& root = *node(root_);
  const uint32_t begun = root.visits + root.in_flight;
  return root.state == NodeState::kTerminal || begun >= kMostVisits ? 0 : kMostVisits - begun;
}

// Collects up to `ahead` positions that the search would reach if its batches had no news. Nothing is backed
// up, so visits that end at known positions count as collisions. Cached positions get their edges (kCached):
// in forced lines, the wanted positions are below them.
void Tree::look_ahead(Batch& batch, int ahead) {
  ahead = std::min(ahead, static_cast<int>(Node::kMostAhead - node(root_)->ahead));
  const int end = result_.evaluations + ahead;
  const auto limit = result_.collision_visits + static_cast<uint32_t>(kCollisionsAhead * ahead);
  const size_t kept = batch.collisions_.size();
  looking_ahead_ = true;
  while (!out_of_memory_ && result_.evaluations < end && result_.collision_visits < limit) {
    visit(batch, root_, static_cast<uint32_t>(end - result_.evaluations));
  }
  looking_ahead_ = false;
  for (size_t i = kept; i < batch.collisions_.size(); ++i) withdraw(batch, batch.collisions_[i]);
  batch.collisions_.resize(kept);
  for (size_t i = batch.wanted_; i < batch.leaves_.size(); ++i) {
    const Batch::Leaf& leaf = batch.leaves_[i];
    for (ArenaIndex index : batch.path(leaf.path_offset, leaf.path_length)) {
      --node(index)->in_flight;
      ++node(index)->ahead;
    }
  }
}

// Makes `visits` visits to a node. The history must be at its position, and the path at its parent.
void Tree::visit(Batch& batch, ArenaIndex index, uint32_t visits) {
  Node& current = *node(index);
  path_.push_back(index);
  current.in_flight += visits;
  current.epoch = static_cast<uint8_t>(epoch_);
  const bool is_root = path_.size() == 1;
  if (current.state == NodeState::kTwoFold && current.repeated_after >= path_.size()) undo_two_fold(path_);

  const bool decided = !is_root && (current.ends_game() || current.bounds.proven());
  if (looking_ahead_ && decided) {
    collide(batch, visits);
  } else if (decided) {
    Value value{static_cast<float>(current.bounds.lower), current.bounds.lower == 0 ? 1.0f : 0.0f, 0.0f};
    if (current.ends_game()) {
      value = {current.q(), current.d, current.m};
    } else {
      value.m = current.m;
    }
    back_up(path_, value, visits);
    result_.visits_done += visits;
  } else if (current.state == NodeState::kPending || (current.state == NodeState::kAhead && looking_ahead_)) {
    collide(batch, visits);
  } else if (current.state == NodeState::kAhead) {
    current.state = NodeState::kPending;
    ++promoted_;
    ++result_.promoted;
    if (visits > 1) collide(batch, visits - 1);
  } else if (current.state == NodeState::kExpanded) {
    descend(batch, current, visits);
  } else if (current.state == NodeState::kCached) {
    const bool is_first = !looking_ahead_ || current.in_flight == visits;
    if (looking_ahead_) {
      if (is_first) collide(batch, 1);
    } else {
      const uint64_t key = cache_key(history_);
      Value value{current.own_q(), current.d, current.m};
      cache_.find(key, current.edge_count, value);  // More exact, unless it was overwritten.
      current.state = NodeState::kExpanded;
      current.d = current.m = 0.0f;
      make_cached_visit(current, value, key);
    }
    if (const uint32_t left = visits - is_first; left > 0) descend(batch, current, left);
  } else {
    switch (expand(batch, current)) {
      case Expansion::kQueued:
        if (visits > 1) collide(batch, visits - 1);
        break;
      case Expansion::kKnown:
        collide(batch, visits);
        break;
      case Expansion::kTerminal:
        if (visits > 1) {
          back_up(path_, {current.q(), current.d, current.m}, visits - 1);
          result_.visits_done += visits - 1;
        }
        break;
      case Expansion::kCached:
        if (looking_ahead_) collide(batch, 1);
        if (visits > 1 && current.has_edges()) {
          descend(batch, current, visits - 1);
        } else if (visits > 1) {
          collide(batch, visits - 1);
        }
        break;
    }
  }
  path_.pop_back();
}

void Tree::descend(Batch& batch, Node& parent, uint32_t visits) {
  const bool is_root = path_.size() == 1;
  SelectionContext context{is_root, draw_score_for_mover(), {}, {}, looking_ahead_};
  const bool* allowed = is_root ? allowed_edges_.get()
                                : move_rules_.allowed(arena_, parent, history_.current(), path_.size() - 1);
  if (allowed) context.allowed_edges = {allowed, parent.edge_count};
  if (is_root) context.priors = root_priors_;

  const size_t first = choices_.size();
  share_visits(arena_, parent, params_, context, visits, choices_);
  // The value of a search of some moves is not the value of the position.
  const bool limited = allowed != nullptr || move_rules_.reach(path_.size() - 1);
  if (params_.transposition_visits > 0 && !looking_ahead_ && !limited) keep_searched_value(parent, visits);
  const size_t last = choices_.size();

  // Choices without memory for their nodes are discarded like collisions.
  bool has_slots = grow_children(parent, choices_[last - 1].edge + 1);
  for (size_t i = first; i < last; ++i) {  // The CPU fetches the lists of all children at once.
    const int edge = choices_[i].edge;
    if (edge >= parent.child_slots || children_of(parent)[edge] == kNone) continue;
    const Node& child = *node(children_of(parent)[edge]);
    if (child.state != NodeState::kExpanded) continue;
    arena_.prefetch(child.edges);
    if (child.child_slots > 0) arena_.prefetch(child.children);
  }
  for (size_t i = first; i < last; ++i) {
    const Choice choice = choices_[i];
    ArenaIndex child = kNone;
    if (has_slots || choice.edge < parent.child_slots) {
      ArenaIndex& slot = children_of(parent)[choice.edge];
      if (slot == kNone) slot = new_node();
      child = slot;
    }
    if (child == kNone) {
      collide(batch, choice.visits);
      continue;
    }
    history_.push(arena_.at<Edge>(parent.edges)[choice.edge].move());
    visit(batch, child, choice.visits);
    history_.pop();
  }
  choices_.resize(first);
}

// Makes room for at least `slots` children. Returns false without memory.
bool Tree::grow_children(Node& parent, int slots) {
  if (slots <= parent.child_slots) return true;
  const int old_granules = child_granules(parent.child_slots);
  const int new_granules = child_granules(slots);
  if (new_granules > old_granules) {
    const ArenaIndex grown = allocate(new_granules);
    if (grown == kNone) return false;
    if (old_granules > 0) {
      std::copy_n(children_of(parent), parent.child_slots, arena_.at<ArenaIndex>(grown));
      arena_.free(parent.children, old_granules);
    }
    parent.children = grown;
  }
  std::fill(children_of(parent) + parent.child_slots, children_of(parent) + slots, kNone);
  parent.child_slots = static_cast<uint8_t>(slots);
  return true;
}

// Makes one visit to a node without edges: a game end, a cached evaluation, or a place in the batch.
Tree::Expansion Tree::expand(Batch& batch, Node& leaf) {
  const uint64_t key = cache_key(history_);
  cache_.prefetch(key);  // It is read after the move generation.
  MoveList moves;
  history_.current().legal_moves(moves);
  if (looking_ahead_) {
    if (moves.size() == 0 || drawn_by_rule() || cycle_in_line() > 0 || value_of_leaf_by_tables()) {
      return Expansion::kKnown;
    }
  } else if (end_game(leaf, moves.size())) {
    back_up(path_,
            {static_cast<float>(leaf.bounds.proven() ? leaf.bounds.lower : 0),
             leaf.bounds.proven() && leaf.bounds.lower != 0 ? 0.0f : 1.0f, leaf.m},
            1);
    if (params_.sticky_endgames && leaf.bounds.proven()) prove(path_);
    ++result_.visits_done;
    return Expansion::kTerminal;
  }

  const std::span<const Move> legal(moves.begin(), moves.end());
  Value value;
  if (auto priors = cache_.find(key, legal.size(), value); !priors.empty()) {
    if (looking_ahead_ && path_.back() == graft_.anchor) return Expansion::kKnown;
    give_edges(leaf, new_edges(legal.size()), legal, priors);
    if (!looking_ahead_) {
      make_cached_visit(leaf, value, key);
    } else if (leaf.state == NodeState::kExpanded) {
      leaf.state = NodeState::kCached;
      leaf.set_own_q(value.q);
      leaf.d = value.d;
      leaf.m = value.m;
    }
    return Expansion::kCached;
  }

  leaf.state = looking_ahead_ ? NodeState::kAhead : NodeState::kPending;
  const int transform =
      encode(history_, params_.input_format, params_.history_fill, batch.positions_[batch.leaves_.size()]);
  const Color side = history_.current().side_to_move();
  for (Move move : legal) {
    batch.moves_.push_back(move);
    batch.policy_indices_.push_back(policy_index(move, side, transform));
  }
  batch.offsets_.push_back(static_cast<uint32_t>(batch.moves_.size()));
  batch.leaves_.push_back({batch.keep_path(path_), static_cast<uint32_t>(path_.size()), key,
                           params_.corrects_values() ? bias_slot(history_) : uint16_t{0}});
  ++result_.evaluations;
  return Expansion::kQueued;
}

// Makes the first visit of a node that has edges. value: the network's, from the cache.
void Tree::make_cached_visit(Node& leaf, Value value, uint64_t key) {
  const float network_q = value.q;
  value = rescaled(value, history_.current().side_to_move(), params_);
  const float raw = value.q;
  const bool searched = params_.transposition_visits > 0 && take_searched_value(key, leaf.edge_count, value);
  if (params_.corrects_values()) value = corrected(leaf, bias_slot(history_), raw, value, !searched);
  leaf.set_own_q(params_.adjusts_values() ? value.q : network_q);
  back_up(path_, {-value.q, value.d, value.m}, 1);
  if (path_.back() == graft_.anchor) attach_graft();
  ++result_.visits_done;
  ++result_.cache_hits;
}

// Marks a node if the game is over there. The root is searched if it has a legal move.
bool Tree::end_game(Node& leaf, int legal_moves) {
  const bool is_root = path_.size() == 1;
  if (legal_moves == 0) {
    leaf.state = NodeState::kTerminal;
    leaf.bounds = Bounds::exact(history_.current().in_check() ? 1 : 0);
    return true;
  }
  if (is_root) return false;
  if (drawn_by_rule()) {
    third_repetitions_ |= history_.repetitions() >= 2;
    leaf.state = NodeState::kTerminal;
    leaf.bounds = Bounds::exact(0);
    return true;
  }
  if (const uint32_t cycle = cycle_in_line(); cycle > 0) {
    leaf.state = NodeState::kTwoFold;
    leaf.repeated_after = cycle;
    if (params_.known_draws == KnownDraws::kRepetition) node(path_[path_.size() - 2])->bounds.can_repeat = 1;
    return true;
  }
  if (const std::optional<int> value = value_of_leaf_by_tables()) {
    leaf.state = NodeState::kTerminal;
    leaf.bounds = Bounds::from_tables(-*value);
    // The length of the game is unknown, so do not change the parent's.
    leaf.m = std::max(0.0f, node(path_[path_.size() - 2])->m - 1.0f);
    return true;
  }
  return false;
}

bool Tree::drawn_by_rule() const {
  const Position& position = history_.current();
  return history_.repetitions() >= 2 || position.rule50() >= 100 || position.insufficient_material();
}

// Returns the plies since the earlier occurrence of the current position, if that is in the searched line and
// makes it a draw; otherwise 0.
uint32_t Tree::cycle_in_line() const {
  if (!params_.two_fold_draws || history_.repetitions() != 1) return 0;
  const auto cycle = static_cast<uint32_t>(history_.plies_since_repetition());
  return path_.size() - 1 >= cycle ? cycle : 0;
}

void Tree::collide(Batch& batch, uint32_t visits) {
  batch.collisions_.push_back({batch.keep_path(path_), static_cast<uint32_t>(path_.size()), visits});
  result_.collision_visits += visits;
  ++collision_events_;
}

// If most visits meet the same position in flight, the search prefers its line. More visits in flight there
// would only make other lines look better than they are, and their visits stay.
uint32_t Tree::collision_visits_limit() const {
  const double visits = node(root_)->visits;
  const double share =
      std::clamp((visits - kCollisionsStart) / (kCollisionsEnd - kCollisionsStart), 0.0, 1.0);
  double limit = std::max(1, params_.max_collision_visits) * std::pow(share, kCollisionsPower);
  if (params_.visits_per_collision > 0) {
    limit = std::min({limit, visits / params_.visits_per_collision, std::sqrt(visits) / kRootsPerCollision});
  }
  return static_cast<uint32_t>(std::max(1.0, limit));
}

// Returns a hash of the current position, its earlier occurrences, the clock in steps, and optionally earlier
// positions.
uint64_t Tree::cache_key(const History& history) const {
  const Position& position = history.current();
  uint64_t key = position.key();
  key = mix(key ^
            mix((clock_bucket(position.rule50()) << 8) + static_cast<uint64_t>(history.repetitions()) + 1));
  const int earlier = std::min(params_.cache_history_length, history.length() - 1);
  for (int back = 1; back <= earlier; ++back) {
    key = mix(key ^ (history.at(back).key() + static_cast<uint64_t>(history.repetitions(back))));
  }
  return key;
}

// Stores the value of a node at the current position in the cache, if its `visits` new visits pass a power of
// two.
void Tree::keep_searched_value(const Node& searched, uint32_t visits) {
  const uint32_t begun = searched.visits + searched.in_flight;
  if (searched.visits < 2 || std::bit_width(begun) == std::bit_width(begun - visits)) return;
  cache_.note_searched(cache_key(history_), searched.edge_count,
                       {-searched.q(), searched.d, searched.visits});
}

// Returns true if the cache has a searched value with enough visits, which replaces the network's.
bool Tree::take_searched_value(uint64_t key, size_t moves, Value& value) const {
  const SearchedValue searched = cache_.searched(key, moves);
  if (searched.visits < static_cast<uint32_t>(params_.transposition_visits)) return false;
  value.q = searched.q;
  value.d = searched.d;
  return true;
}

float Tree::draw_score_for_mover() const {
  return history_.current().side_to_move() == Color::kWhite ? params_.draw_score : -params_.draw_score;
}

}  // namespace wavefront::tree
