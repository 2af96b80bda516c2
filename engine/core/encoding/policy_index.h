// SPDX-License-Identifier: GPL-3.0-or-later
// Mapping between moves and the 1858 entries of lc0's policy vector.
//
// The entries are 1792 from-to moves sorted by from and to, then 66 promotions to queen, rook or bishop.
// Squares are in the view of the side to move, with the board transform of the canonical input formats
// applied (encoder.h). If that transposes the board, moves are rotated by 180 degrees instead. A promotion to
// knight is the plain from-to move, and castling is king takes rook.
#pragma once

#include <cstdint>
#include <string>

#include "chess/position.h"

namespace wavefront::encoding {

using namespace chess;

inline constexpr int kPolicySize = 1858;

// Returns the index of a move, in absolute coordinates, which must be geometrically possible. A table lookup.
uint16_t policy_index(Move move, Color side_to_move, int transform);

// Returns the move of `index` (0 to 1857) in `position`, in absolute coordinates. A plain pawn move to the
// last rank becomes a promotion to knight. The move may be illegal.
Move policy_move(const Position& position, int index, int transform);

// Returns the entry's move as text in the view of the side to move: "e2e4", "a7a8q".
std::string policy_move_name(int index);

}  // namespace wavefront::encoding
