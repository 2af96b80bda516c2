// SPDX-License-Identifier: GPL-3.0-or-later
// The search for a move that mates at once, which the mate search calls most.
#pragma once

#include <cstdint>

#include "chess/position.h"

namespace wavefront::mate {

// Returns one of the legal moves that mates, or no move. Only moves that may give check are played.
// positions: their number is added.
chess::Move mate_in_one(const chess::Position& position, const chess::MoveList& moves, uint64_t& positions);

// True if the side to move is in check and has no legal move.
bool is_mate(const chess::Position& position);

}  // namespace wavefront::mate
