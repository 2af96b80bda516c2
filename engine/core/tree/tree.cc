// SPDX-License-Identifier: GPL-3.0-or-later
#include "tree/tree.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <stdexcept>

#include "chess/uci_move.h"

namespace wavefront::tree {
namespace {

bool same_evaluations(const SearchParams& a, const SearchParams& b) {
  return a.input_format == b.input_format && a.history_fill == b.history_fill &&
         a.policy_temperature == b.policy_temperature && a.cache_history_length == b.cache_history_length;
}

bool same_tree(const SearchParams& a, const SearchParams& b) {
  return same_evaluations(a, b) && a.transposition_visits == b.transposition_visits &&
         a.two_fold_draws == b.two_fold_draws && a.sticky_endgames == b.sticky_endgames &&
         a.wdl_ratio == b.wdl_ratio && a.wdl_shift == b.wdl_shift && a.wdl_max_scale == b.wdl_max_scale &&
         a.tablebases == b.tablebases && a.syzygy_50_move_rule == b.syzygy_50_move_rule &&
         a.syzygy_fast_play == b.syzygy_fast_play && a.keeps_spread() == b.keeps_spread() &&
         a.known_draws == b.known_draws && a.subtree_value_bias == b.subtree_value_bias;
}

}  // namespace

Tree::Tree(const SearchParams& params)
    : params_(params), arena_(params.tree_bytes), cache_(params.cache_bytes), history_(Position::start()) {
  errors_.resize(params.corrects_values() ? kBiasSlots : 0);
  set_position(Game());
}

void Tree::set_params(const SearchParams& params) {
  std::lock_guard lock(mutex_);
  if (batches_in_flight_ > 0) throw std::logic_error("settings cannot change while a batch is in flight");
  if (!same_evaluations(params, params_) || params.cache_bytes != params_.cache_bytes) {
    cache_ = EvaluationCache(params.cache_bytes);
    ++cache_generation_;
  } else if (!same_tree(params, params_)) {
    cache_.forget_searched();
  }
  const bool shrinks = arena_.holds_more_than(params.tree_bytes);
  if (shrinks || !same_tree(params, params_)) arena_.clear();
  arena_.set_max_bytes(params.tree_bytes);
  errors_.resize(params.corrects_values() ? kBiasSlots : 0);
  if (shrinks || !same_tree(params, params_)) reset_root();
  const bool ranks_differ =
      params.tablebases != params_.tablebases || params.syzygy_50_move_rule != params_.syzygy_50_move_rule ||
      params.syzygy_fast_play != params_.syzygy_fast_play || params.solves_endings != params_.solves_endings;
  params_ = params;
  if (ranks_differ) rank_root_moves();
  update_root_edges();
}

void Tree::set_root_moves(const std::vector<std::string>& moves) {
  std::lock_guard lock(mutex_);
  std::vector<Move> parsed;
  for (const std::string& move : moves) {
    parsed.push_back(parse_uci(history_.current(), move));
  }
  root_moves_ = std::move(parsed);
  limit_root_moves();
  update_root_edges();
}

void Tree::set_move_rules(MoveRules rules) {
  std::lock_guard lock(mutex_);
  if (rules == move_rules_) return;
  if (batches_in_flight_ > 0) throw std::logic_error("rules cannot change while a batch is in flight");
  move_rules_ = std::move(rules);
  reset_root();
  reset_counters();
  update_root_edges();
}

void Tree::clear() {
  std::lock_guard lock(mutex_);
  if (batches_in_flight_ > 0) throw std::logic_error("the tree cannot be cleared while a batch is in flight");
  reset_root();
  reset_counters();
  update_root_edges();
}

void Tree::clear_cache() {
  std::lock_guard lock(mutex_);
  cache_.clear();
  ++cache_generation_;
}

void Tree::reset_root() {
  arena_.clear();
  std::fill(errors_.begin(), errors_.end(), BiasEntry());
  to_free_.clear();
  above_.clear();
  graft_ = {};
  third_repetitions_ = false;
  reset_hand();
  edges_before_noise_.clear();
  root_ = new_node();
}

void Tree::reset_counters() {
  playouts_ = 0;
  depth_sum_ = 0;
  value_sum_ = value_square_sum_ = 0;
  max_depth_ = 0;
  evaluations_ = batches_ = 0;
  cache_hits_ = 0;
  tablebase_hits_ = 0;
  full_ = false;
}

void Tree::update_root_edges() {
  const Node& root = *node(root_);
  update_root_priors();
  allowed_edges_.reset();
  if (searched_moves_.empty() || root.state != NodeState::kExpanded) return;
  allowed_edges_ = std::make_unique<bool[]>(root.edge_count);
  const Edge* edges = arena_.at<Edge>(root.edges);
  for (int i = 0; i < root.edge_count; ++i) {
    allowed_edges_[i] =
        std::find(searched_moves_.begin(), searched_moves_.end(), edges[i].move()) != searched_moves_.end();
  }
}

// Converts priors from the tree's policy temperature to the root's: to the power of the ratio, which keeps
// their order.
void Tree::update_root_priors() {
  const Node& root = *node(root_);
  root_priors_.clear();
  const double temperature = params_.policy_temperature_at_root;
  if (temperature <= 0.0 || root.state != NodeState::kExpanded) return;
  const Edge* edges = arena_.at<Edge>(root.edges);
  const double power = params_.policy_temperature / temperature;
  double sum = 0.0;
  for (int i = 0; i < root.edge_count; ++i) {
    const double prior = std::pow(edges[i].prior() / edges[0].prior(), power);
    root_priors_.push_back(static_cast<float>(prior));
    sum += prior;
  }
  for (float& prior : root_priors_) prior /= static_cast<float>(sum);
}

float Tree::root_prior(int edge) const {
  if (!root_priors_.empty()) return root_priors_[static_cast<size_t>(edge)];
  return arena_.at<Edge>(node(root_)->edges)[edge].prior();
}

void Tree::add_root_noise(float epsilon, float alpha, uint64_t seed) {
  std::lock_guard lock(mutex_);
  if (!(epsilon >= 0.0f && epsilon <= 1.0f && alpha > 0.0f && alpha < 1e6f)) {
    throw std::invalid_argument("noise needs an epsilon of 0 to 1 and an alpha above 0");
  }
  if (batches_in_flight_ > 0) throw std::logic_error("noise cannot be added while a batch is in flight");
  root_noise_ = RootNoise{epsilon, alpha, seed};
  mix_root_noise();
}

// Edges stay sorted by prior, so edges and child slots are reordered. Afterwards visited edges need not be a
// prefix: the slots in between hold kNone.
void Tree::mix_root_noise() {
  Node& root = *node(root_);
  if (!root_noise_ || root.state != NodeState::kExpanded) return;
  const RootNoise noise = *root_noise_;
  root_noise_.reset();
  if (!edges_before_noise_.empty()) return;

  std::mt19937_64 generator(noise.seed);
  std::gamma_distribution<double> gamma(noise.alpha, 1.0);
  std::vector<double> draws(root.edge_count);
  double sum = 0.0;
  for (double& draw : draws) sum += draw = gamma(generator);
  if (!(sum > 0.0)) return;  // all draws underflowed, because alpha is tiny

  Edge* edges = arena_.at<Edge>(root.edges);
  std::vector<std::pair<Edge, ArenaIndex>> mixed;
  for (int i = 0; i < root.edge_count; ++i) {
    const double prior = (1.0 - noise.epsilon) * edges[i].prior() + noise.epsilon * draws[i] / sum;
    mixed.emplace_back(Edge(edges[i].move(), pack_prior(static_cast<float>(std::min(prior, 1.0)))),
                       i < root.child_slots ? children_of(root)[i] : kNone);
  }
  std::sort(mixed.begin(), mixed.end(),
            [](const auto& a, const auto& b) { return a.first.word > b.first.word; });
  int slots = 0;
  for (int i = 0; i < root.edge_count; ++i) {
    if (mixed[i].second != kNone) slots = i + 1;
  }
  if (!grow_children(root, slots)) return;  // no memory: keep the children instead of the noise
  edges_before_noise_.assign(edges, edges + root.edge_count);
  for (int i = 0; i < root.edge_count; ++i) {
    edges[i] = mixed[i].first;
    if (i < root.child_slots) children_of(root)[i] = mixed[i].second;
  }
  if (params_.adjusts_values()) adjust(root);
  update_root_edges();
}

}  // namespace wavefront::tree
