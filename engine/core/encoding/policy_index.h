// SPDX-License-Identifier: GPL-3.0-or-later
// lc0's policy vector: which of its 1858 entries stands for which move.
//
// The entries are 1792 from-to moves sorted by from and to, then 66 promotions to queen, rook or bishop.
// Squares are in the view of the side to move, with the board transform of the canonical input formats
// applied (encoder.h); where that transposes the board it turns moves by 180 degrees. A promotion to knight
// is the plain from-to move, castling is king takes rook.
#pragma once

#include <cstdint>
#include <string>

#include "chess/position.h"

namespace wavefront::encoding {

using namespace chess;

inline constexpr int kPolicySize = 1858;

// A table lookup. `move` is in absolute coordinates and must be one that some piece can make.
uint16_t policy_index(Move move, Color side_to_move, int transform);

// The move of `position` that entry `index` (0 to 1857) stands for, in absolute coordinates. A plain move of
// a pawn to the last rank becomes a promotion to knight. The move need not be legal.
Move policy_move(const Position& position, int index, int transform);

// The entry's move as text in the view of the side to move: "e2e4", "a7a8q".
std::string policy_move_name(int index);

}  // namespace wavefront::encoding
