// SPDX-License-Identifier: GPL-3.0-or-later
// Adjustment of network values to the strength of both sides, with lc0's model of win, draw and loss.
#pragma once

#include "chess/square.h"
#include "tree/evaluation_cache.h"
#include "tree/search_params.h"

namespace wavefront::tree {

using namespace chess;

// Returns the adjusted value for the side to move. Win and loss are the tails beyond 1 and -1 of a logistic
// distribution with centre mu and scale s. The result has scale ratio * s and centre mu + s^2 * shift, where
// shift is for White. Values too close to a certain result are unchanged.
Value rescaled(Value value, Color side, const SearchParams& params);

}  // namespace wavefront::tree
