// SPDX-License-Identifier: GPL-3.0-or-later
#include "tree/selection.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tree/spread.h"

namespace wavefront::tree {
namespace {

// The lines that are shown get one in this many of the root's visits.
constexpr int kLinesShare = 4;

// Looking ahead, a move loses this times the share of its visits that is in flight. Otherwise one good move
// attracts all walks, even if all of its replies are in flight. Visits a call in simulated time, with 0, 0.1,
// 0.3 and 1: 63, 68, 70, 61, and 36, 45, 41, 35 with little exploration (docs/lab/batching.md).
constexpr float kInFlightPenalty = 0.1f;

constexpr float kNever = -std::numeric_limits<float>::infinity();

// The edges' scores as arrays, so that the loops over them vectorise.
struct Candidates {
  float utility[256];
  float exploration[256];  // P * c * sqrt(N)
  float started[256];      // 1 + visits + in flight
  float score[256];
  uint32_t given[256];
  int count = 0;

  void set_score(int i) { score[i] = utility[i] + exploration[i] / started[i]; }
};

// Returns the visits of edge `best` until its score falls to that of the runner-up.
uint32_t visits_until_overtaken(const Candidates& candidates, int best, float runner_up, uint32_t most) {
  float lead = runner_up - candidates.utility[best];
  if (!(lead > 0.0f)) return most;  // its utility alone keeps it ahead
  float needed = candidates.exploration[best] / lead - candidates.started[best];
  if (needed >= static_cast<float>(most)) return most;
  return std::max(1u, static_cast<uint32_t>(std::max(0.0f, needed)) + 1u);
}

// Returns the exploration factor of a node with N visits.
float cpuct(const SearchParams& params, bool is_root, uint32_t visits) {
  float init = is_root ? params.cpuct_at_root : params.cpuct;
  float base = is_root ? params.cpuct_base_at_root : params.cpuct_base;
  float factor = is_root ? params.cpuct_factor_at_root : params.cpuct_factor;
  if (factor == 0.0f) return init;
  return init + factor * std::log((static_cast<float>(visits) + base) / base);
}

}  // namespace

float exploration_scale(const SearchParams& params, bool is_root, const Node& node) {
  const uint32_t child_visits = node.visits == 0 ? 0 : node.visits - 1;
  return cpuct(params, is_root, node.visits) * std::sqrt(static_cast<float>(std::max(child_visits, 1u)));
}

float first_play_urgency(const SearchParams& params, bool is_root, float parent_q, float visited_policy) {
  bool absolute = is_root ? params.fpu_absolute_at_root : params.fpu_absolute;
  float value = is_root ? params.fpu_value_at_root : params.fpu_value;
  return absolute ? value : parent_q - value * std::sqrt(visited_policy);
}

float moves_left_utility(const SearchParams& params, float q, float parent_q, float child_m, float parent_m) {
  float threshold = params.moves_left_threshold;
  if (params.moves_left_max_effect <= 0.0f || std::abs(parent_q) <= threshold) return 0.0f;
  float effect = std::clamp(params.moves_left_slope * (child_m - parent_m), -params.moves_left_max_effect,
                            params.moves_left_max_effect);
  effect = q > 0.0f ? -effect : effect;
  float size = std::abs(q);
  if (threshold > 0.0f && threshold < 1.0f) size = std::max(0.0f, size - threshold) / (1.0f - threshold);
  return effect * (params.moves_left_constant_factor + params.moves_left_scaled_factor * size +
                   params.moves_left_quadratic_factor * size * size);
}

namespace {

// Common data of the edges without a child.
struct Unvisited {
  const Edge* edges;
  int edge_count;
  int child_slots;
  const bool* allowed;  // null: every edge
  const float* priors;  // null: those of the edges
  float scale;          // c * sqrt(N)
  float urgency;        // first-play urgency

  bool is_allowed(int edge) const { return !allowed || allowed[edge]; }
  float prior(int edge) const { return priors ? priors[edge] : edges[edge].prior(); }
};

// Fills the candidates with the node's edges that have a child slot.
Unvisited gather_visited(const Arena& arena, const Node& node, const SearchParams& params,
                         const SelectionContext& context, Candidates& candidates) {
  const Edge* edges = arena.at<Edge>(node.edges);
  const ArenaIndex* children = node.child_slots == 0 ? nullptr : arena.at<ArenaIndex>(node.children);
  const float* priors = context.priors.empty() ? nullptr : context.priors.data();
  const float scale = exploration_scale(params, context.is_root, node);
  // After a move was played, the new root may be expanded but have no visits.
  const float parent_q = node.visits == 0 ? 0.0f : -node.q() + context.draw_score * node.d;
  const float parent_m = node.m;
  const bool moves_left_matters =
      params.moves_left_max_effect > 0.0f && std::abs(parent_q) > params.moves_left_threshold;

  float visited_policy = 0.0f;
  for (int i = 0; i < node.child_slots; ++i) {
    float prior = priors ? priors[i] : edges[i].prior();
    candidates.exploration[i] = prior * scale;
    candidates.started[i] = 1.0f;
    candidates.given[i] = 0;
    candidates.utility[i] = std::numeric_limits<float>::quiet_NaN();  // unvisited, until the urgency is known
    if (children[i] == kNone) continue;
    const Node& child = *arena.at<Node>(children[i]);
    candidates.started[i] += static_cast<float>(child.visits + child.in_flight);
    if (child.visits == 0) continue;
    if (child.bounds.upper < 0) prior = candidates.exploration[i] = 0.0f;  // A lost move is not explored.
    visited_policy += prior;
    float q = child.q() + context.draw_score * child.d;
    candidates.utility[i] = q;
    if (context.looking_ahead && child.in_flight > 0) {
      candidates.utility[i] -= kInFlightPenalty * static_cast<float>(child.in_flight) /
                               static_cast<float>(child.visits + child.in_flight);
    }
    if (moves_left_matters) {
      candidates.utility[i] += moves_left_utility(params, q, parent_q, child.m, parent_m);
    }
  }
  candidates.count = node.child_slots;

  const float urgency = first_play_urgency(params, context.is_root, parent_q, visited_policy);
  const bool* allowed = context.allowed_edges.empty() ? nullptr : context.allowed_edges.data();
  for (int i = 0; i < candidates.count; ++i) {
    if (std::isnan(candidates.utility[i])) candidates.utility[i] = urgency;
    if (allowed && !allowed[i]) candidates.utility[i] = kNever;
  }
  for (int i = 0; i < candidates.count; ++i) candidates.set_score(i);
  return {edges, node.edge_count, node.child_slots, allowed, priors, scale, urgency};
}

// Adds the first searched edge without a slot to the candidates.
void add_next_unvisited(const Unvisited& unvisited, Candidates& candidates) {
  while (candidates.count < unvisited.edge_count) {
    const int i = candidates.count++;
    const bool allowed = unvisited.is_allowed(i);
    candidates.utility[i] = allowed ? unvisited.urgency : kNever;
    candidates.exploration[i] = unvisited.prior(i) * unvisited.scale;
    candidates.started[i] = 1.0f;
    candidates.given[i] = 0;
    candidates.set_score(i);
    if (allowed) return;
  }
}

// Distributes the visits to the candidates as PUCT would one by one.
void hand_out(const Unvisited& unvisited, uint32_t visits, Candidates& candidates) {
  for (uint32_t left = visits; left > 0;) {
    int best = 0;
    float best_score = candidates.score[0];
    float runner_up = kNever;
    for (int i = 1; i < candidates.count; ++i) {
      const float score = candidates.score[i];
      if (score > best_score) {
        runner_up = best_score;
        best_score = score;
        best = i;
      } else if (score > runner_up) {
        runner_up = score;
      }
    }
    const bool opens_next = best == candidates.count - 1 && best >= unvisited.child_slots;
    const bool next_may_win = opens_next && best + 1 < unvisited.edge_count;
    uint32_t given = 1;
    if (left > 1 && !next_may_win) given = visits_until_overtaken(candidates, best, runner_up, left);
    candidates.given[best] += given;
    candidates.started[best] += static_cast<float>(given);
    candidates.set_score(best);
    left -= given;
    if (opens_next && left > 0) add_next_unvisited(unvisited, candidates);
  }
}

// Gives visits to the moves that are shown as lines and have too few: those with the most visits, then those
// with the best priors. Returns the visits that are left. A proven move needs none.
uint32_t give_to_lines(const Arena& arena, const Node& root, const Unvisited& unvisited, int lines,
                       uint32_t visits, Candidates& candidates) {
  auto counts = [&](int i) {
    const ArenaIndex child = i < root.child_slots ? arena.at<ArenaIndex>(root.children)[i] : kNone;
    return unvisited.is_allowed(i) && (child == kNone || !arena.at<Node>(child)->bounds.proven());
  };
  std::vector<int> shown;
  for (int i = 0; i < candidates.count; ++i) {
    if (counts(i)) shown.push_back(i);
  }
  while (static_cast<int>(shown.size()) < lines && candidates.count < unvisited.edge_count) {
    add_next_unvisited(unvisited, candidates);
    if (counts(candidates.count - 1)) shown.push_back(candidates.count - 1);
  }
  std::stable_sort(shown.begin(), shown.end(),
                   [&](int a, int b) { return candidates.started[a] > candidates.started[b]; });
  if (static_cast<int>(shown.size()) > lines) shown.resize(static_cast<size_t>(lines));
  const auto all = static_cast<float>(root.visits + root.in_flight);
  const auto least = static_cast<uint32_t>(all / static_cast<float>(kLinesShare * lines));
  for (int i : shown) {
    const auto started = static_cast<uint32_t>(candidates.started[i]) - 1;
    const uint32_t given = started < least ? std::min(visits, least - started) : 0;
    if (given == 0) continue;
    candidates.given[i] += given;
    candidates.started[i] += static_cast<float>(given);
    candidates.set_score(i);
    visits -= given;
  }
  return visits;
}

}  // namespace

void share_visits(const Arena& arena, const Node& node, const SearchParams& params,
                  const SelectionContext& context, uint32_t visits, std::vector<Choice>& choices) {
  Candidates candidates;
  const Unvisited unvisited = gather_visited(arena, node, params, context, candidates);
  add_next_unvisited(unvisited, candidates);
  if (context.is_root && params.multipv > 1) {
    visits = give_to_lines(arena, node, unvisited, params.multipv, visits, candidates);
  }
  hand_out(unvisited, visits, candidates);
  for (int i = 0; i < candidates.count; ++i) {
    if (candidates.given[i] > 0) choices.push_back({i, candidates.given[i]});
  }
}

}  // namespace wavefront::tree
