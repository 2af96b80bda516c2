// SPDX-License-Identifier: GPL-3.0-or-later
// Which moves of a position keep what the tables say it is worth.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "chess/history.h"
#include "chess/move.h"
#include "syzygy/tablebases.h"

namespace wavefront::syzygy {

struct RankingRules {
  // Wins that the 50-move rule ends are draws; else they count as wins.
  bool fifty_moves = true;
  // Of winning moves only those with the shortest distance.
  bool shortest_wins = false;
};

struct RankedMove {
  Move move;
  int rank;   // higher is better; equal ranks are for somebody else to choose among
  int value;  // of the game after it, for the one who makes it: 1 win, 0 draw, -1 loss
  int plies;  // to the next capture or pawn move, or mate, this move included; 0 for draws and if unknown
};

struct RootRanking {
  std::vector<RankedMove> moves;
  // The distances are known, so that moves of the highest rank lead to the value in the end. Else only the
  // value of each position is, and a win may be kept forever.
  bool by_distance;
};

// Ranks moves of the current position by distance, or where DTZ tables are missing, by value. Nothing if
// tables do not know all of them, or if there are none.
//
// A winning move is as good as any other while capture, pawn move or mate comes in time for the 50-move rule.
// When it might not, or when a position has occurred twice since the clock was reset, so that no progress is
// being made, the shortest is best. A losing side holds out longest when the clock may save it.
std::optional<RootRanking> rank_root(const Tablebases& tables, const History& history,
                                     std::span<const Move> moves, const RankingRules& rules);

}  // namespace wavefront::syzygy
