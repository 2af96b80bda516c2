// SPDX-License-Identifier: GPL-3.0-or-later
// A game: its start, the moves played and all positions.
#pragma once

#include <string_view>
#include <vector>

#include "chess/fen.h"
#include "chess/history.h"
#include "chess/outcome.h"

namespace wavefront::chess {

class Game {
 public:
  // The initial position of standard chess.
  Game() : start(Position::start()), history(start) {}
  // Throws std::invalid_argument like parse_fen.
  Game(std::string_view fen, bool is_chess960, OpponentCheck opponent_check = OpponentCheck::kRefuse);
  Game(const Position& begin, bool is_chess960) : start(begin), chess960(is_chess960), history(begin) {}

  // Plays a legal move given as UCI text. Throws std::invalid_argument, and leaves the game unchanged.
  void push_uci(std::string_view text);
  void push(Move move);  // a legal move
  // Takes the last move back and returns it. Throws std::invalid_argument if none was played.
  Move pop();

  // True if the position can be played from; false only for a start that needs OpponentCheck::kAllow.
  bool playable() const { return !current().opponent_in_check(); }

  const Position& current() const { return history.current(); }
  Outcome outcome() const { return chess::outcome(history, current().legal_move_count()); }

  Position start;
  bool chess960 = false;
  History history;
  std::vector<Move> moves;
};

}  // namespace wavefront::chess
