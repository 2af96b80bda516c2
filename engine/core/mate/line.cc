// SPDX-License-Identifier: GPL-3.0-or-later
// The moves of a proven mate: the attacker mates in time, the defender holds out as long as possible.
//
// The proof of the mate and the earlier one that no shorter mate exists have searched these positions. Where
// the table has lost them, they are searched again, within the budget of the run.
#include <stdexcept>

#include "mate/mate_in_one.h"
#include "mate/solver.h"

namespace wavefront::mate {

using namespace chess;

namespace {

// The legal moves, the given one first if it is among them.
MoveList moves_from(const Position& position, Move first) {
  MoveList legal;
  position.legal_moves(legal);
  if (!legal.contains(first)) return legal;
  MoveList moves;
  moves.push(first);
  for (const Move move : legal) {
    if (move != first) moves.push(move);
  }
  return moves;
}

}  // namespace

// Returns true once the line is complete, false if the budget ends first.
bool MateSolver::extend_line() {
  Position position = root_;
  for (const Move move : line_) position.play(move);
  for (int plies = 2 * mate_ - 1 - int(line_.size()); plies > 0; --plies) {
    const auto move = attacks(position) ? winning_move(position, plies) : longest_defence(position, plies);
    if (!move) return false;
    line_.push_back(*move);
    position.play(*move);
  }
  return true;
}

// Returns a move of the attacker that mates in at most `plies`. Nothing: the budget is used up.
std::optional<Move> MateSolver::winning_move(const Position& position, int plies) {
  for (const Move move : moves_from(position, move_in_table(position))) {
    Position after = position;
    after.play(move);
    ++positions_;
    const std::optional<bool> wins = mates_within(after, plies - 1);
    if (!wins) return std::nullopt;
    if (*wins) return move;
  }
  throw std::logic_error("a proven mate has no move");
}

// Returns a reply that allows no mate before the last of `plies`. Nothing: the budget is used up.
std::optional<Move> MateSolver::longest_defence(const Position& position, int plies) {
  const MoveList replies = moves_from(position, move_in_table(position));
  for (const Move reply : replies) {
    if (plies <= 2) break;
    Position after = position;
    after.play(reply);
    ++positions_;
    const std::optional<bool> shorter = mates_within(after, plies - 3);
    if (!shorter) return std::nullopt;
    if (!*shorter) return reply;
  }
  return replies[0];
}

Move MateSolver::move_in_table(const Position& position) const {
  const ProofEntry* entry = table_.find(key(position));
  return entry ? entry->move : Move();
}

// Returns true if the attacker mates in at most `plies`. Nothing: the budget is used up.
std::optional<bool> MateSolver::mates_within(const Position& position, int plies) {
  if (!attacks(position) && position.legal_move_count() == 0) return position.in_check();
  if (plies == 0 || is_drawn(position)) return false;
  const bool attacker_moves = attacks(position);
  std::optional<Value> value = known(position, plies);
  if (!value || !value->numbers.solved()) {
    value = search(position, plies, {kInfinite, kInfinite}, false);
  }
  if (!value->numbers.solved()) return std::nullopt;
  return (value->numbers.phi == 0) == attacker_moves;
}

}  // namespace wavefront::mate
