// SPDX-License-Identifier: GPL-3.0-or-later
// Moves as UCI text ("e2e4", "e7e8q").
#pragma once

#include <string>
#include <string_view>

#include "chess/position.h"

namespace wavefront::chess {

// Returns a move as UCI text. Castling is the king's two-square move (e1g1) in standard chess, king takes
// rook (e1h1) in Chess960. The move need not be legal; the pieces of `position` identify castling.
std::string move_to_uci(const Position& position, Move move, bool chess960);

// Reads a legal move, with castling in either notation. A king's move to c1 or g1 that is legal as a plain
// step is that step. Throws std::invalid_argument with the reason if the text is not a legal move.
Move parse_uci(const Position& position, std::string_view text);

}  // namespace wavefront::chess
