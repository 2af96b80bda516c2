// SPDX-License-Identifier: GPL-3.0-or-later
// Every setting of the search core. The constants mean what lc0's of the same name do and have its defaults;
// memory has the defaults of the engine's options (engine/options.py).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "encoding/encoder.h"
#include "syzygy/tablebases.h"

namespace wavefront::tree {

using namespace syzygy;
using namespace encoding;

// Draws that a node's value takes into account: none; where one is proven; and where one of its moves counts
// as one by repetition.
enum class KnownDraws : uint8_t { kOff, kProven, kRepetition };

struct SearchParams {
  // PUCT's exploration: cpuct + cpuct_factor * ln((N + cpuct_base) / cpuct_base), own values at the root.
  float cpuct = 1.745f;
  float cpuct_base = 38739.0f;
  float cpuct_factor = 3.894f;
  float cpuct_at_root = 1.745f;
  float cpuct_base_at_root = 38739.0f;
  float cpuct_factor_at_root = 3.894f;

  // Exploration is multiplied with 1 + scale (deviation / prior - 1), deviation being that of the node's
  // values, in which the prior one counts as some visits (tree/spread.h); 0 leaves it.
  float cpuct_deviation_scale = 0.0f;
  float deviation_prior = 0.2f;
  float deviation_prior_visits = 4.0f;

  // First-play urgency: Q of an unvisited move. Reduction: the parent's Q less fpu_value times the square
  // root of the visited moves' prior sum. Absolute: fpu_value itself.
  bool fpu_absolute = false;
  float fpu_value = 0.33f;
  bool fpu_absolute_at_root = false;
  float fpu_value_at_root = 0.33f;

  // Priors are the softmax of logits divided by this.
  float policy_temperature = 1.359f;
  // The same at the root, after noise; 0: as elsewhere.
  float policy_temperature_at_root = 0.0f;

  // Moves-left utility; max_effect 0 turns it off.
  float moves_left_max_effect = 0.0345f;
  float moves_left_threshold = 0.8f;
  float moves_left_slope = 0.0027f;
  float moves_left_constant_factor = 0.0f;
  float moves_left_scaled_factor = 1.6521f;
  float moves_left_quadratic_factor = -0.6521f;

  // Value of a draw for White, -1 to 1.
  float draw_score = 0.0f;

  // How network values are bent before the search uses them (tree/wdl_rescale.h); 1 and 0 leave them as they
  // are.
  float wdl_ratio = 1.0f;
  float wdl_shift = 0.0f;
  float wdl_max_scale = 1.4f;

  // A position that repeats one of the searched line counts as a draw.
  bool two_fold_draws = true;

  // Proven results move up the tree.
  bool sticky_endgames = true;

  // A node's value is not outside the limits that draws set it (tree/values.cc).
  KnownDraws known_draws = KnownDraws::kOff;

  // How much worse than the moves before it a move of little prior must be for its visits to count for
  // little (tree/values.cc): by so much, and 63 % of those too many are left out. 0: all count.
  float noise_pruning_scale = 0.0f;

  // A position found in the evaluation cache brings the value of a search of at least so many visits, if the
  // cache knows one; 0: always the network's.
  int transposition_visits = 0;

  // The best root move is the one of best Q among those with at least this share of the most visits. Q less
  // so many standard deviations of its mean.
  float value_choice_share = 1.0f;
  float value_choice_deviations = 0.0f;

  // How many visits of one batch may be spent on positions already in flight. The limit on visits grows from
  // 1 at scaling_start visits of the tree to max_collision_visits at scaling_end.
  int max_collision_events = 917;
  int max_collision_visits = 80000;
  int max_collision_visits_scaling_start = 28;
  int max_collision_visits_scaling_end = 145000;
  float max_collision_visits_scaling_power = 1.25f;
  // Nor more than one for each so many visits of the tree, at least one; 0: no such limit.
  int visits_per_collision = 512;

  // A batch is sent as it is once cache hits and game ends have taken this many times its size in visits.
  float max_out_of_order_factor = 2.4f;

  // Null: none. Shared by all trees that use the same folders.
  std::shared_ptr<syzygy::Tablebases> tablebases;
  // Wins by tablebases that the 50-move rule ends are draws; else they count as wins.
  bool syzygy_50_move_rule = true;
  // In a position that DTZ tables know, only the shortest wins are searched.
  bool syzygy_fast_play = false;

  size_t tree_bytes = size_t{2048} << 20;
  size_t cache_bytes = size_t{64} << 20;

  // Earlier positions that must be equal, besides the current one, for a cached evaluation to be used.
  int cache_history_length = 0;

  InputFormat input_format = InputFormat::kClassical;
  HistoryFill history_fill = HistoryFill::kFenOnly;

  // Whether nodes keep the spread of their values.
  bool keeps_spread() const { return cpuct_deviation_scale > 0.0f || value_choice_deviations > 0.0f; }
  // Whether a node's value is more than the mean of its visits.
  bool adjusts_values() const { return known_draws != KnownDraws::kOff || noise_pruning_scale > 0.0f; }
};

}  // namespace wavefront::tree
