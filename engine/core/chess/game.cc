// SPDX-License-Identifier: GPL-3.0-or-later
// Playing a game by UCI text.
#include "chess/game.h"

#include <stdexcept>

#include "chess/uci_move.h"

namespace wavefront::chess {

Game::Game(std::string_view fen, bool is_chess960, OpponentCheck opponent_check)
    : start(parse_fen(fen, is_chess960, opponent_check)), chess960(is_chess960), history(start) {}

void Game::push_uci(std::string_view text) {
  if (!playable()) throw std::invalid_argument("no move can be played: the side not to move is in check");
  push(parse_uci(current(), text));
}

void Game::push(Move move) {
  history.push(move);
  moves.push_back(move);
}

Move Game::pop() {
  if (moves.empty()) throw std::invalid_argument("no move to take back");
  const Move move = moves.back();
  moves.pop_back();
  history.pop();
  return move;
}

}  // namespace wavefront::chess
