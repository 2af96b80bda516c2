// SPDX-License-Identifier: GPL-3.0-or-later
// Network values bent to how strongly the two sides play, after lc0's model of win, draw and loss.
#pragma once

#include "chess/square.h"
#include "tree/evaluation_cache.h"
#include "tree/search_params.h"

namespace wavefront::tree {

using namespace chess;

// The value for a side to move, as the search uses it. Win and loss are taken for the tails beyond 1 and -1
// of a logistic distribution with the centre mu and the scale s; the result has the scale ratio * s and the
// centre mu + s^2 * shift, where shift counts for White. Values too near to a certain result stay as they
// are.
Value rescaled(Value value, Color side, const SearchParams& params);

}  // namespace wavefront::tree
