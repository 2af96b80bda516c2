// SPDX-License-Identifier: GPL-3.0-or-later
// Reports of the search: the root, its moves and their principal variations.

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "chess/uci_move.h"
#include "tree/spread.h"
#include "tree/tree.h"

namespace wavefront::tree {
namespace {

// Deduction from the value of a winning move that leads to an earlier position of the game.
constexpr float kNoProgress = 0.05f;

// Added to the rank of moves with enough visits, above the others' rank of 0: larger than any deduction from
// Q.
constexpr double kAboveOthers = 1e3;

// Returns 1 for a proven win of the side that plays the move, -1 for a loss; only that ranks such a move.
int decided(const Node& child) {
  return child.bounds.lower == 1 ? 1 : child.bounds.upper == -1 ? -1 : 0;
}

}  // namespace

// Returns visited edges from best to worst: quick wins first, lost moves last, others by visits, Q and prior.
// At the root, moves with enough of the most visits come first, by Q: the search may find a refutation late,
// and the move's visits then take long to fall behind. Q may be reduced by its uncertainty: a confidence
// bound, as in KataGo's choice of moves (`useLcbForSelection`). In won positions all moves have nearly the
// same Q. So the expected length of the game counts as in the selection, and an earlier position of the game
// is no progress.
std::vector<Tree::RankedEdge> Tree::ranked_edges(const Node& parent, bool is_root) const {
  std::vector<RankedEdge> ranked;
  if (parent.state != NodeState::kExpanded) return ranked;
  for (int i = 0; i < parent.edge_count; ++i) {
    if (is_root && allowed_edges_ && !allowed_edges_[i]) continue;
    ArenaIndex index = i < parent.child_slots ? children_of(parent)[i] : kNone;
    const Node* child = index == kNone ? nullptr : node(index);
    if (child != nullptr && child->visits == 0) child = nullptr;
    if (child == nullptr && !is_root) continue;
    ranked.push_back({i, child});
  }
  uint32_t most = 0;
  for (const RankedEdge& edge : ranked) {
    if (edge.child != nullptr && decided(*edge.child) == 0) most = std::max(most, edge.child->visits);
  }
  const float parent_q = parent.visits == 0 ? 0.0f : -parent.q() + draw_score_for_mover() * parent.d;
  const auto progress = [&](const RankedEdge& ranked_edge) {
    const Node& child = *ranked_edge.child;
    float gain = moves_left_utility(params_, child.q(), parent_q, child.m, parent.m);
    const Move move = arena_.at<Edge>(parent.edges)[ranked_edge.edge].move();
    if (parent_q > params_.moves_left_threshold && repeats(move)) gain -= kNoProgress;
    return gain;
  };
  const double enough = is_root ? params_.value_choice_share * most : most;
  auto rank = [&](const RankedEdge& ranked_edge) {
    const Node* child = ranked_edge.child;
    if (child == nullptr) return std::tuple(0, 0.0f, -1.0, 0u, 0.0f, -ranked_edge.edge);
    const int result = decided(*child);
    const float plies = child->proven_plies();
    const float speed = result == 1 ? -plies : result == -1 ? plies : 0.0f;
    const float q = child->q();
    const bool has_enough = result == 0 && child->visits >= enough;
    const float gain = is_root && has_enough ? progress(ranked_edge) : 0.0f;
    const double choice = has_enough ? kAboveOthers + q + gain - doubt_of_choice(*child) : 0.0;
    return std::tuple(result, speed, choice, child->visits, q, -ranked_edge.edge);
  };
  std::vector<std::pair<decltype(rank(ranked.front())), RankedEdge>> keyed;
  for (const RankedEdge& edge : ranked) keyed.emplace_back(rank(edge), edge);
  std::sort(keyed.begin(), keyed.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (size_t i = 0; i < keyed.size(); ++i) ranked[i] = keyed[i].second;
  return ranked;
}

// Returns true if a root move leads to an earlier position of the game.
bool Tree::repeats(Move move) const {
  if (history_.current().rule50() < 3) return false;
  History line = history_;
  line.push(move);
  return line.repetitions() > 0;
}

// Returns the deduction from a move's Q in the choice: standard deviations of the mean of its values.
float Tree::doubt_of_choice(const Node& child) const {
  if (params_.value_choice_deviations <= 0.0f) return 0.0f;
  return params_.value_choice_deviations * deviation_of(child) / std::sqrt(static_cast<float>(child.visits));
}

std::optional<Proof> Tree::proof_of(const Node& child) const {
  if (!child.bounds.proven() || child.visits == 0) return std::nullopt;
  return Proof{child.bounds.lower, static_cast<int>(std::lround(child.m)) + 1, child.bounds.by_tables != 0};
}

Evaluation Tree::evaluation_of(const Node& child) const {
  if (child.visits == 0) return {};
  return {child.wl_sum / child.visits, child.d, child.m + 1.0};
}

// Called for every batch, so it sorts the moves only if something is proven. If the root moves are limited,
// only these count, and the root's own bounds do not apply.
std::optional<Proof> Tree::root_proof() const {
  const Node& root = *node(root_);
  if (root.state == NodeState::kTerminal) return Proof{-root.bounds.lower, 0, false};
  if (root.state != NodeState::kExpanded) return std::nullopt;
  int best = -1;
  bool all_proven = true;
  for (int i = 0; i < root.edge_count; ++i) {
    if (allowed_edges_ && !allowed_edges_[i]) continue;
    const ArenaIndex index = i < root.child_slots ? children_of(root)[i] : kNone;
    if (index == kNone || node(index)->visits == 0 || !node(index)->bounds.proven()) {
      all_proven = false;
    } else {
      best = std::max<int>(best, node(index)->bounds.lower);
    }
  }
  if (best == 1 || (all_proven && best == -1)) return proof_of(*ranked_edges(root, true).front().child);
  if (all_proven) return Proof{0, 0, false};
  return std::nullopt;
}

// Returns the network's evaluation of a position, for its side to move. A node only stores the value, and
// only if the search uses it unchanged.
std::optional<Evaluation> Tree::network_evaluation(const History& history, const Node& evaluated) const {
  if (evaluated.state != NodeState::kExpanded) return std::nullopt;
  Value own;
  if (!cache_.find(cache_key(history), evaluated.edge_count, own).empty())
    return Evaluation{own.q, own.d, own.m};
  if (params_.adjusts_values()) return std::nullopt;
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  return Evaluation{evaluated.own_q(), kUnknown, kUnknown};
}

RootInfo Tree::root_info() const {
  std::lock_guard lock(mutex_);
  const Node& root = *node(root_);
  RootInfo info;
  info.visits = root.visits;
  info.playouts = playouts_;
  if (playouts_ > 0) info.mean_depth = static_cast<double>(depth_sum_) / static_cast<double>(playouts_);
  info.max_depth = max_depth_;
  info.evaluations = evaluations_;
  info.batches = batches_;
  info.cache_hits = cache_hits_;
  info.tablebase_hits = tablebase_hits_;
  if (root.visits > 0) {
    info.evaluation = {-root.wl_sum / root.visits, root.d, root.m};
  }
  info.own_evaluation = network_evaluation(history_, root);
  if (playouts_ > 0) {
    const double count = static_cast<double>(playouts_), mean = value_sum_ / count;
    info.q_deviation = std::sqrt(std::max(0.0, value_square_sum_ / count - mean * mean));
  }
  info.proof = root_proof();
  info.memory_bytes = arena_.used_bytes();
  info.hashfull = static_cast<int>(arena_.used_bytes() * 1000 / arena_.capacity_bytes());
  info.batches_in_flight = batches_in_flight_;
  info.promoted = promoted_;
  info.full = full_;
  return info;
}

std::vector<Line> Tree::lines(int count) const {
  std::lock_guard lock(mutex_);
  std::vector<Line> found;
  const Node& root = *node(root_);
  const double urgency = std::clamp(root_first_play_urgency(), -1.0f, 1.0f);
  const Evaluation unvisited{urgency, std::min<double>(root.d, 1.0 - std::abs(urgency)), root.m};
  for (const RankedEdge& first : ranked_edges(root, true)) {
    if (static_cast<int>(found.size()) >= count) break;
    Line line;
    line.prior = root_prior(first.edge);
    if (first.child != nullptr) {
      line.visits = first.child->visits;
      line.evaluation = evaluation_of(*first.child);
      line.proof = proof_of(*first.child);
      if (params_.value_choice_deviations > 0.0f) {
        line.doubt = decided(*first.child) != 0 ? 0.0f : doubt_of_choice(*first.child);
      }
    } else {
      line.evaluation = unvisited;
    }
    Position position = history_.current();
    const Node* parent = &root;
    RankedEdge step = first;
    while (true) {
      const Move move = arena_.at<Edge>(parent->edges)[step.edge].move();
      line.moves.push_back(move_to_uci(position, move, game_->chess960));
      line.move_visits.push_back(step.child == nullptr ? 0 : step.child->visits);
      position.play(move);
      if (step.child == nullptr) break;
      parent = step.child;
      auto replies = ranked_edges(*parent, false);
      if (replies.empty()) break;
      step = replies.front();
    }
    line.by_tables = value_by_tables(arena_.at<Edge>(root.edges)[first.edge].move(), line);
    found.push_back(std::move(line));
  }
  if (!found.empty()) add_lines_left_out(found, count);
  return found;
}

// Returns the assumed value of unvisited root moves, as in selection.
float Tree::root_first_play_urgency() const {
  const Node& root = *node(root_);
  if (root.state != NodeState::kExpanded) return 0.0f;
  float visited_policy = 0.0f;
  for (int i = 0; i < root.child_slots; ++i) {
    const ArenaIndex index = children_of(root)[i];
    if (index != kNone && node(index)->visits > 0) visited_policy += root_prior(i);
  }
  const float q = root.visits == 0 ? 0.0f : -root.q() + draw_score_for_mover() * root.d;
  return first_play_urgency(params_, true, q, visited_policy);
}

std::vector<ChildInfo> Tree::children(bool own_values) const {
  std::lock_guard lock(mutex_);
  std::optional<History> line;
  if (own_values) line = history_;
  std::vector<ChildInfo> infos;
  float policy_sum = 0.0f;
  const Node& root = *node(root_);
  const float scale = exploration_scale(params_, true, root);
  const float urgency = root_first_play_urgency();
  const float root_q = root.visits == 0 ? 0.0f : -root.q() + draw_score_for_mover() * root.d;
  for (const RankedEdge& ranked : ranked_edges(root, true)) {
    const Edge& edge = arena_.at<Edge>(root.edges)[ranked.edge];
    ChildInfo info;
    info.move = move_to_uci(history_.current(), edge.move(), game_->chess960);
    info.prior = root_prior(ranked.edge);
    float before_noise = edge.prior();
    for (const Edge& before : edges_before_noise_) {
      if (before.move() == edge.move()) before_noise = before.prior();
    }
    info.policy = std::pow(before_noise, params_.policy_temperature);
    policy_sum += info.policy;
    if (ranked.child != nullptr) {
      info.visits = ranked.child->visits;
      info.in_flight = ranked.child->in_flight;
      info.deviation = static_cast<float>(std::sqrt(variance_of(*ranked.child)));
      info.evaluation = evaluation_of(*ranked.child);
      info.proof = proof_of(*ranked.child);
      if (own_values && ranked.child->state == NodeState::kTerminal) {
        info.own_q = static_cast<float>(info.evaluation.q);
      } else if (own_values) {
        line->push(edge.move());
        if (const auto own = network_evaluation(*line, *ranked.child)) {
          info.own_q = static_cast<float>(-own->q);
        }
        line->pop();
      }
    }
    info.exploration = info.prior * scale / static_cast<float>(1 + info.visits + info.in_flight);
    info.value = urgency;
    float utility = 0.0f;
    if (ranked.child != nullptr) {
      info.value = ranked.child->q() + draw_score_for_mover() * ranked.child->d;
      info.bounds = ranked.child->bounds;
      utility = moves_left_utility(params_, info.value, root_q, ranked.child->m, root.m);
    }
    info.score = info.value + utility + info.exploration;
    infos.push_back(std::move(info));
  }
  for (ChildInfo& info : infos) {
    info.policy = policy_sum > 0.0f ? info.policy / policy_sum : 1.0f / static_cast<float>(infos.size());
  }
  return infos;
}

}  // namespace wavefront::tree
