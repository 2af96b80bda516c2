// SPDX-License-Identifier: GPL-3.0-or-later
// The outcome of a game by the rules.
#pragma once

#include "chess/history.h"

namespace wavefront::chess {

enum class Result { kUndecided, kWhiteWon, kBlackWon, kDraw };

struct Outcome {
  Result result;
  const char* reason;  // "" while undecided
};

// Returns the outcome at the current position of `history`. legal_moves: number of its legal moves. Order:
// checkmate and stalemate, insufficient material, 50-move rule (100 plies), threefold repetition.
Outcome outcome(const History& history, int legal_moves);

}  // namespace wavefront::chess
