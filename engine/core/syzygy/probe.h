// SPDX-License-Identifier: GPL-3.0-or-later
// Probing the tables for a position.
//
// A stored value may ignore captures if these are best, and always ignores en passant, so probing searches
// captures itself. Positions with castling rights, too many men or a missing table have no value.
#pragma once

#include <optional>

#include "chess/position.h"
#include "syzygy/tablebases.h"

namespace wavefront::syzygy {

// True if the tables may have a position: few men, and no castling rights.
inline bool may_be_known(const Tablebases& tables, const Position& position) {
  return position.men() <= tables.most_men() && !position.has_castling_rights();
}

// Returns the value for the side to move, with a 50-move clock of 0.
std::optional<Wdl> probe_wdl(const Tablebases& tables, const Position& position);

// Returns the value as 1, 0 or -1. fifty_moves: count cursed wins and blessed losses as draws, otherwise as
// wins and losses.
inline int game_value(Wdl wdl, bool fifty_moves) {
  const int value = static_cast<int>(wdl);
  return fifty_moves ? value / 2 : (value > 0) - (value < 0);
}

// Returns DTZ50: plies to the next capture or pawn move, or to mate, with best play. It is positive if the
// side to move wins, negative if it loses, 0 for a draw. Cursed wins and blessed losses have 100 more. The
// tables store many distances in moves, so the result may be one too small. A mated position has -1.
std::optional<int> probe_dtz(const Tablebases& tables, const Position& position);

// Returns the DTZ of a position whose best move is a capture or pawn move. wdl: the value after it, for the
// side that makes it. 1, 101, 0, -101 or -1.
int dtz_of_zeroing_move(Wdl wdl);

// True if a legal move resets the 50-move clock: a capture or pawn move.
inline bool resets_clock(const Position& position, Move move) {
  return position.piece_on(move.from()) == kPawn ||
         (position.pieces(~position.side_to_move()) & bit(move.to())) != 0;
}

}  // namespace wavefront::syzygy
