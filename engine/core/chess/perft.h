// SPDX-License-Identifier: GPL-3.0-or-later
// Counting move sequences, to verify move generation and measure its speed.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "chess/position.h"

namespace wavefront::chess {

// Returns the number of legal move sequences of `depth` plies (1 for depth 0). Counts the last ply in bulk.
uint64_t perft(const Position& position, int depth);

// Returns the number for each first move. depth: at least 1.
std::vector<std::pair<Move, uint64_t>> perft_divide(const Position& position, int depth);

}  // namespace wavefront::chess
