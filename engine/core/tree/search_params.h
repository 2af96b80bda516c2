// SPDX-License-Identifier: GPL-3.0-or-later
// The settings of the search core. Constants have the meaning and the defaults of lc0's with the same name.
// Memory limits have the defaults of the engine's options (engine/options/__init__.py).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "encoding/encoder.h"
#include "syzygy/tablebases.h"

namespace wavefront::tree {

using namespace syzygy;
using namespace encoding;

// Draws that limit a node's value: none; proven ones; those and its moves that are draws by repetition.
enum class KnownDraws : uint8_t { kOff, kProven, kRepetition };

struct SearchParams {
  // PUCT's exploration: cpuct + cpuct_factor * ln((N + cpuct_base) / cpuct_base), with separate values at the
  // root.
  float cpuct = 1.745f;
  float cpuct_base = 38739.0f;
  float cpuct_factor = 3.894f;
  float cpuct_at_root = 1.745f;
  float cpuct_base_at_root = 38739.0f;
  float cpuct_factor_at_root = 3.894f;

  // First-play urgency: Q of an unvisited move. Reduction: the parent's Q less fpu_value times the square
  // root of the visited moves' prior sum. Absolute: fpu_value itself.
  bool fpu_absolute = false;
  float fpu_value = 0.33f;
  bool fpu_absolute_at_root = false;
  float fpu_value_at_root = 0.33f;

  // Number of best root moves that are shown. Together they get at least a quarter of the root's visits, in
  // equal parts.
  int multipv = 1;

  // Divisor of the logits before the softmax.
  float policy_temperature = 1.359f;
  // Temperature at the root, after noise; 0: as elsewhere.
  float policy_temperature_at_root = 0.0f;

  // Moves-left utility; max_effect 0 disables it.
  float moves_left_max_effect = 0.0345f;
  float moves_left_threshold = 0.8f;
  float moves_left_slope = 0.0027f;
  float moves_left_constant_factor = 0.0f;
  float moves_left_scaled_factor = 1.6521f;
  float moves_left_quadratic_factor = -0.6521f;

  // Value of a draw for White, -1 to 1.
  float draw_score = 0.0f;

  // Adjustment of network values before their use (tree/wdl_rescale.h); 1 and 0 leave them unchanged.
  float wdl_ratio = 1.0f;
  float wdl_shift = 0.0f;
  float wdl_max_scale = 1.4f;

  // Count a repetition of a position of the searched line as a draw.
  bool two_fold_draws = true;

  // Propagate proven results up the tree.
  bool sticky_endgames = true;

  // Limit a node's value by draws (tree/values.cc).
  KnownDraws known_draws = KnownDraws::kOff;

  // Minimum visits of a searched value in the cache that replaces the network's value; 0: always use the
  // network's.
  int transposition_visits = 0;

  // The best root move has the best Q among those with at least this share of the most visits. Q is reduced
  // by this many standard deviations of its mean.
  float value_choice_share = 1.0f;
  float value_choice_deviations = 0.0f;

  // Maximum visits of a batch that meet positions in flight; fewer in small trees (tree/collect.cc).
  int max_collision_events = 917;
  int max_collision_visits = 80000;
  // Minimum tree visits per such visit. One such visit is always allowed, but at most a third of the square
  // root of the tree's visits. 0: neither limit.
  int visits_per_collision = 512;

  // May be null. Shared by all trees with the same folders.
  std::shared_ptr<syzygy::Tablebases> tablebases;
  // Count tablebase wins that the 50-move rule ends as draws, otherwise as wins.
  bool syzygy_50_move_rule = true;
  // Search only the shortest wins in a position that DTZ tables know.
  bool syzygy_fast_play = false;
  // Solve endings with one or two pieces against a bare king, if tables do not know them.
  bool solves_endings = false;

  // Share of the network's mean error after the same move that corrects its values (tree/bias.h); 0: none.
  float subtree_value_bias = 0.0f;

  size_t tree_bytes = size_t{2048} << 20;
  size_t cache_bytes = size_t{64} << 20;

  // Number of earlier positions that must equal those of a cached evaluation.
  int cache_history_length = 0;

  InputFormat input_format = InputFormat::kClassical;
  HistoryFill history_fill = HistoryFill::kFenOnly;

  // True if nodes record the spread of their values.
  bool keeps_spread() const { return value_choice_deviations > 0.0f; }
  // True if a node's value may differ from the mean of its visits.
  bool adjusts_values() const { return known_draws != KnownDraws::kOff; }
  // True if the network's values are corrected by its errors.
  bool corrects_values() const { return subtree_value_bias > 0.0f; }
};

}  // namespace wavefront::tree
