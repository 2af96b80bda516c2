// SPDX-License-Identifier: GPL-3.0-or-later
// PUCT: which moves of a position get the next visits.
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

// What selection needs to know of the node beyond its record.
struct SelectionContext {
  bool is_root;
  float draw_score;                     // value of a draw for the side to move
  std::span<const bool> allowed_edges;  // that are searched; empty: all
  std::span<const float> priors;        // of the root's edges, in their order; empty: as in the edges
};

// Appends to `choices` how `visits` more visits of an expanded node are shared among its edges, each visit
// going where PUCT's score is highest, the visits already given counted as in flight:
//
//   Q + moves-left utility + P * c * sqrt(max(1, N_children)) / (1 + N + in flight)
//
// Q and utility stay fixed while visits are shared out, so whole runs of visits that go to one edge are given
// at once. Edges come in ascending order, each at most once.
void share_visits(const Arena& arena, const Node& node, const SearchParams& params,
                  const SelectionContext& context, uint32_t visits, std::vector<Choice>& choices);

// What a prior is multiplied with to give PUCT's exploration of an unvisited move of a node: c * sqrt(max(1,
// N_children)).
float exploration_scale(const SearchParams& params, bool is_root, const Node& node);

// Q that unvisited moves are taken to have. parent_q: for the side to move; visited_policy: sum of the
// priors of its visited moves.
float first_play_urgency(const SearchParams& params, bool is_root, float parent_q, float visited_policy);

// Preference for short wins and long losses: 0 unless the parent is decided beyond the threshold.
// q, parent_q: for the side to move at the parent. child_m, parent_m: plies to the end of the game.
float moves_left_utility(const SearchParams& params, float q, float parent_q, float child_m, float parent_m);

}  // namespace wavefront::tree
