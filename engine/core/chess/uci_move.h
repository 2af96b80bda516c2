// SPDX-License-Identifier: GPL-3.0-or-later
// Moves as UCI text ("e2e4", "e7e8q").
#pragma once

#include <string>
#include <string_view>

#include "chess/position.h"

namespace wavefront::chess {

// The move's UCI text. Castling is the king's two-square move (e1g1) in standard chess, king takes rook
// (e1h1) in Chess960. The move need not be legal, but castling is recognised by the pieces of `position`.
std::string move_to_uci(const Position& position, Move move, bool chess960);

// Reads a legal move. Castling is understood in both spellings; a king's move to c1 or g1 that is
// legal as a plain step is that step. Throws std::invalid_argument saying why the text is no legal move.
Move parse_uci(const Position& position, std::string_view text);

}  // namespace wavefront::chess
