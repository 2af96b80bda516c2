// SPDX-License-Identifier: GPL-3.0-or-later
// Perft with a copy of the position per move.
#include "chess/perft.h"

namespace wavefront::chess {

uint64_t perft(const Position& position, int depth) {
  if (depth <= 0) return 1;
  if (depth == 1) return uint64_t(position.legal_move_count());
  MoveList moves;
  position.legal_moves(moves);
  uint64_t nodes = 0;
  for (const Move move : moves) {
    Position next = position;
    next.play_without_key(move);
    nodes += perft(next, depth - 1);
  }
  return nodes;
}

std::vector<std::pair<Move, uint64_t>> perft_divide(const Position& position, int depth) {
  MoveList moves;
  position.legal_moves(moves);
  std::vector<std::pair<Move, uint64_t>> counts;
  for (const Move move : moves) {
    Position next = position;
    next.play_without_key(move);
    counts.emplace_back(move, perft(next, depth - 1));
  }
  return counts;
}

}  // namespace wavefront::chess
