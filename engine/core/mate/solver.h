// SPDX-License-Identifier: GPL-3.0-or-later
// The search for a mate: depth-first proof-number search (df-pn), one depth after the other.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "chess/history.h"
#include "chess/move.h"
#include "mate/proof_table.h"

namespace wavefront::mate {

// Finds the shortest mate within a number of moves of the side to move (the attacker), or proves that there
// is none. It considers all moves of both sides, so its results hold by the rules of chess.
//
// `run` searches in slices, between which the caller checks its limits. The table keeps the state.
//
// Draws by repetition: a position that occurred twice in the game is a draw at its next occurrence. Those
// that occurred once cannot matter: on the way of a shortest mate no position occurs twice. Draws by the
// 50-move rule: if the counter can reach 100, it is part of the table's key.
class MateSolver {
 public:
  static constexpr int kMostMoves = 127;  // the table stores plies in bytes

  // root_moves: moves that the attacker may begin with; empty: all. moves: at least 1.
  MateSolver(const chess::History& history, std::vector<chess::Move> root_moves, int moves,
             size_t table_bytes);

  // Searches about this number of further positions. Returns true if the result is final.
  bool run(uint64_t positions);

  // Moves of the shortest mate; 0 while none is known.
  int mate() const { return mate_; }
  // There is no mate in at most this number of moves.
  int excluded() const { return excluded_; }
  // The moves up to the mate, with the longest defence. Shorter before `run` has returned true.
  const std::vector<chess::Move>& line() const { return line_; }
  uint64_t positions() const { return positions_; }
  const ProofTable& table() const { return table_; }

 private:
  struct Child {
    chess::Move move;
    uint8_t mate_plies;
    Numbers numbers;
  };
  struct Value {
    Numbers numbers;
    uint8_t mate_plies;
    chess::Move move;  // best of the side to move
  };

  bool attacks(const chess::Position& position) const { return position.side_to_move() == attacker_; }
  bool is_drawn(const chess::Position& position) const;
  uint64_t key(const chess::Position& position) const;
  bool out_of_budget() const { return progressed_ && positions_ >= limit_; }
  Value value_of(bool attacker_wins, bool attacker_moves, int mate_plies, chess::Move move = {}) const;

  Value search(const chess::Position& position, int plies, Numbers limits, bool at_root);
  Value solve_leaf(const chess::Position& position, int plies, bool at_root);
  int plies_after_replies(const chess::Position& position);
  bool refutes(const chess::Position& position, chess::Move reply);
  void expand(const chess::Position& position, int plies, const chess::MoveList& moves);
  Child child_of(const chess::Position& after, int plies, chess::Move move);
  Value sum_of(size_t first, bool attacker_moves, size_t& best, uint32_t& second) const;
  std::optional<Value> known(const chess::Position& position, int plies) const;
  void store(const chess::Position& position, int plies, const Value& value, uint64_t effort);
  chess::MoveList moves_of(const chess::Position& position, bool at_root) const;

  bool extend_line();
  std::optional<bool> mates_within(const chess::Position& position, int plies);
  std::optional<chess::Move> winning_move(const chess::Position& position, int plies);
  std::optional<chess::Move> longest_defence(const chess::Position& position, int plies);
  chess::Move move_in_table(const chess::Position& position) const;

  const chess::Position root_;
  const chess::Color attacker_;
  const std::vector<chess::Move> root_moves_;
  const int moves_;
  std::vector<uint64_t> occurred_twice_;  // keys of positions of the game
  ProofTable table_;
  std::vector<Child> children_;  // of all nodes on the path, one after the other

  bool counter_matters_ = false;
  bool progressed_ = false;  // in this run: a search has ended
  chess::Move refutation_;   // the defender's last one
  uint64_t limit_ = 0;
  uint64_t positions_ = 0;
  int excluded_ = 0;
  int mate_ = 0;
  std::vector<chess::Move> line_;
};

}  // namespace wavefront::mate
