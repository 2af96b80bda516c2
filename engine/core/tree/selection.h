// SPDX-License-Identifier: GPL-3.0-or-later
// PUCT: the selection of the moves that get the next visits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tree/arena.h"
#include "tree/node.h"
#include "tree/search_params.h"

namespace wavefront::tree {

struct Choice {
  int edge;
  uint32_t visits;
};

// Data of a node for selection, in addition to its record.
struct SelectionContext {
  bool is_root;
  float draw_score;                     // value of a draw for the side to move
  std::span<const bool> allowed_edges;  // searched edges; empty: all
  std::span<const float> priors;        // of the root's edges, in order; empty: the edges' own
  bool looking_ahead;                   // see kInFlightPenalty
};

// Distributes `visits` more visits of an expanded node among its edges, and appends the result to `choices`.
// Each visit goes to the highest PUCT score, with earlier ones counted as in flight:
//
//   Q + moves-left utility + P * c * sqrt(max(1, N_children)) / (1 + N + in flight)
//
// Q and utility stay fixed meanwhile, so consecutive visits to one edge are assigned at once. Looking ahead,
// Q is lower by the share of its visits that is in flight. Edges are in ascending order, each at most once.
void share_visits(const Arena& arena, const Node& node, const SearchParams& params,
                  const SelectionContext& context, uint32_t visits, std::vector<Choice>& choices);

// Returns the factor of a prior in PUCT's exploration of an unvisited move: c * sqrt(max(1, N_children)).
float exploration_scale(const SearchParams& params, bool is_root, const Node& node);

// Returns the assumed Q of unvisited moves. parent_q: for the side to move. visited_policy: sum of the priors
// of visited moves.
float first_play_urgency(const SearchParams& params, bool is_root, float parent_q, float visited_policy);

// Returns the preference for short wins and long losses: 0 unless the parent's value exceeds the threshold.
// q, parent_q: for the side to move at the parent. child_m, parent_m: plies to the end of the game.
float moves_left_utility(const SearchParams& params, float q, float parent_q, float child_m, float parent_m);

}  // namespace wavefront::tree
