// SPDX-License-Identifier: GPL-3.0-or-later
// Ranking of root moves by the tables.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "chess/history.h"
#include "chess/move.h"
#include "syzygy/tablebases.h"

namespace wavefront::syzygy {

struct RankingRules {
  // Count wins that the 50-move rule ends as draws, otherwise as wins.
  bool fifty_moves = true;
  // Rank only the shortest wins highest.
  bool shortest_wins = false;
};

struct RankedMove {
  Move move;
  int rank;   // higher is better; the caller chooses among equal ranks
  int value;  // of the game after it, for its side: 1 win, 0 draw, -1 loss
  int plies;  // to the next capture, pawn move or mate, this move included; 0 for draws and if unknown
};

struct RootRanking {
  std::vector<RankedMove> moves;
  // True if the distances are known, so that moves of the highest rank make progress. Otherwise only values
  // are known, and a winning side may keep its win without progress.
  bool by_distance;
};

// Ranks moves of the current position by distance, or without DTZ tables by value. Returns nothing if the
// tables do not know all moves, or there are none.
//
// All winning moves are equal while a capture, pawn move or mate comes in time for the 50-move rule. If it
// might not, or if a position has repeated since the clock was reset, the shortest is best. So it is with a
// queen, a rook or two minor pieces against a bare king: there the distance is that to mate. A losing side
// prefers the longest if the clock may save it.
std::optional<RootRanking> rank_root(const Tablebases& tables, const History& history,
                                     std::span<const Move> moves, const RankingRules& rules);

}  // namespace wavefront::syzygy
