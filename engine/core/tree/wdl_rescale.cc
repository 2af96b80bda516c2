// SPDX-License-Identifier: GPL-3.0-or-later
#include "tree/wdl_rescale.h"

#include <algorithm>
#include <cmath>

namespace wavefront::tree {

Value rescaled(Value value, Color side, const SearchParams& params) {
  if (params.wdl_ratio == 1.0f && params.wdl_shift == 0.0f) return value;
  constexpr float kCertain = 1e-4f;
  const float win = (1 - value.d + value.q) / 2, loss = (1 - value.d - value.q) / 2;
  for (float share : {win, value.d, loss}) {
    if (!(share > kCertain && share < 1 - kCertain)) return value;
  }
  // 1 / (1 + exp((1 - mu) / s)) = win, and the same with -mu for loss, solved for mu and s.
  const float to_win = std::log(1 / win - 1), to_loss = std::log(1 / loss - 1);
  const float mu = (to_loss - to_win) / (to_loss + to_win);
  const float s = std::min(2 / (to_loss + to_win), params.wdl_max_scale);
  const float shift = side == Color::kWhite ? params.wdl_shift : -params.wdl_shift;
  const float centre = mu + s * s * shift, scale = s * params.wdl_ratio;
  const float new_win = 1 / (1 + std::exp((1 - centre) / scale));
  const float new_loss = 1 / (1 + std::exp((1 + centre) / scale));
  return {new_win - new_loss, std::max(0.0f, 1 - new_win - new_loss), value.m};
}

}  // namespace wavefront::tree
