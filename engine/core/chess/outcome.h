// SPDX-License-Identifier: GPL-3.0-or-later
// How a game stands by the rules.
#pragma once

#include "chess/history.h"

namespace wavefront::chess {

enum class Result { kUndecided, kWhiteWon, kBlackWon, kDraw };

struct Outcome {
  Result result;
  const char* reason;  // "" while undecided
};

// The outcome at the current position of `history`, whose legal moves number `legal_moves`. Checkmate and
// stalemate come first, then bare material, the 50-move rule (100 plies) and the third occurrence.
Outcome outcome(const History& history, int legal_moves);

}  // namespace wavefront::chess
