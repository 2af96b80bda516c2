// SPDX-License-Identifier: GPL-3.0-or-later
// What the tables know of a position.
//
// A stored value is that of a position without its captures where these are best, and knows nothing of en
// passant; probing looks at captures itself. Positions with castling rights, with more men than tables have
// and those for which a table is missing have no value.
#pragma once

#include <optional>

#include "chess/position.h"
#include "syzygy/tablebases.h"

namespace wavefront::syzygy {

// Whether the tables may have a position: few men, and nobody can castle.
inline bool may_be_known(const Tablebases& tables, const Position& position) {
  return position.men() <= tables.most_men() && !position.has_castling_rights();
}

// The value for the side to move, as if the 50-move clock had just been reset.
std::optional<Wdl> probe_wdl(const Tablebases& tables, const Position& position);

// The same as 1, 0 or -1. fifty_moves: cursed wins and blessed losses are draws; else they are wins and
// losses.
inline int game_value(Wdl wdl, bool fifty_moves) {
  const int value = static_cast<int>(wdl);
  return fifty_moves ? value / 2 : (value > 0) - (value < 0);
}

// DTZ50: plies to the next capture or pawn move, or to mate, with best play, from the side to move's view:
// positive when it wins, negative when it loses, 0 for a draw. Cursed wins and blessed losses have 100 more.
// The tables store many distances in moves, so a number may be one too small. A position that is mate has -1.
std::optional<int> probe_dtz(const Tablebases& tables, const Position& position);

// The DTZ of a position of which only the next move, a capture or pawn move, is known: that it leads to a
// position with this value for the one who made it. 1, 101, 0, -101 or -1.
int dtz_of_zeroing_move(Wdl wdl);

// Whether a legal move resets the 50-move clock, as captures and pawn moves do.
inline bool resets_clock(const Position& position, Move move) {
  return position.piece_on(move.from()) == kPawn ||
         (position.pieces(~position.side_to_move()) & bit(move.to())) != 0;
}

}  // namespace wavefront::syzygy
