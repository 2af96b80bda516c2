// SPDX-License-Identifier: GPL-3.0-or-later
// The rules that end a game, in lc0's order.
#include "chess/outcome.h"

namespace wavefront::chess {

Outcome outcome(const History& history, int legal_moves) {
  const Position& position = history.current();
  if (legal_moves == 0) {
    if (!position.in_check()) return {Result::kDraw, "stalemate"};
    return {position.side_to_move() == kWhite ? Result::kBlackWon : Result::kWhiteWon, "checkmate"};
  }
  if (position.insufficient_material()) return {Result::kDraw, "insufficient material"};
  if (position.rule50() >= 100) return {Result::kDraw, "fifty-move rule"};
  if (history.repetitions() >= 2) return {Result::kDraw, "threefold repetition"};
  return {Result::kUndecided, ""};
}

}  // namespace wavefront::chess
