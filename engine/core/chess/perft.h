// SPDX-License-Identifier: GPL-3.0-or-later
// Counting move sequences: the proof and the speed test of move generation.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "chess/position.h"

namespace wavefront::chess {

// The number of legal move sequences of `depth` plies (1 for depth 0). The last ply is counted in bulk.
uint64_t perft(const Position& position, int depth);

// The same, split by first move. depth is at least 1.
std::vector<std::pair<Move, uint64_t>> perft_divide(const Position& position, int depth);

}  // namespace wavefront::chess
