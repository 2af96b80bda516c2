// SPDX-License-Identifier: GPL-3.0-or-later
// The proof-number search. line.cc finds the moves up to a proven mate.
//
// A position has two numbers, from the view of its side to move: phi is the least delta of its children, and
// delta is the sum of their phi. The search descends to the child with the least delta, until a number
// reaches its limit. Each depth is a search of its own, so no line returns to a position, and the shortest
// mate is found first. All positions with three plies or less left are solved at once, without numbers: there
// the attacker needs a move after which each reply allows a mate in one.
#include "mate/solver.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "chess/mix.h"
#include "mate/mate_in_one.h"

namespace wavefront::mate {

using namespace chess;

namespace {

constexpr int kPliesToDraw = 100;
constexpr int kLeafPlies = 3;
constexpr int kRefuted = -1;
constexpr uint8_t kNoMate = ProofEntry::kNoMate;
constexpr Numbers kUnlimited{kInfinite, kInfinite};

// Keys of the positions of a game that occurred at least twice since the last capture or pawn move.
std::vector<uint64_t> repeated(const History& history) {
  std::vector<uint64_t> keys;
  const int plies = std::min(history.current().rule50(), history.length() - 1);
  for (int back = 0; back <= plies; ++back) {
    if (history.repetitions(back) > 0) keys.push_back(history.at(back).key());
  }
  return keys;
}

uint32_t capped(uint64_t number) {
  return uint32_t(std::min<uint64_t>(number, kInfinite));
}

}  // namespace

MateSolver::MateSolver(const History& history, std::vector<Move> root_moves, int moves, size_t table_bytes)
    : root_(history.current()),
      attacker_(root_.side_to_move()),
      root_moves_(std::move(root_moves)),
      moves_(std::min(moves, kMostMoves)),
      occurred_twice_(repeated(history)),
      table_(table_bytes) {}

bool MateSolver::run(uint64_t positions) {
  limit_ = positions_ + positions;
  progressed_ = false;
  if (!mate_ && (at_most_one(root_.pieces(attacker_)) || root_.insufficient_material())) excluded_ = moves_;
  while (!mate_ && excluded_ < moves_) {
    const int plies = 2 * excluded_ + 1;
    // The position before the last move must not be a draw.
    counter_matters_ = root_.rule50() + plies - 1 >= kPliesToDraw;
    const Value value = search(root_, plies, kUnlimited, true);
    if (value.numbers.phi == 0) {
      mate_ = excluded_ + 1;
      line_.push_back(value.move);
    } else if (value.numbers.delta == 0) {
      ++excluded_;
    } else {
      return false;
    }
  }
  return !mate_ || extend_line();
}

bool MateSolver::is_drawn(const Position& position) const {
  if (position.rule50() >= kPliesToDraw || position.insufficient_material()) return true;
  if (occurred_twice_.empty()) return false;
  return std::find(occurred_twice_.begin(), occurred_twice_.end(), position.key()) != occurred_twice_.end();
}

uint64_t MateSolver::key(const Position& position) const {
  return counter_matters_ ? position.key() ^ mix(uint64_t(position.rule50()) + 1) : position.key();
}

MateSolver::Value MateSolver::value_of(bool attacker_wins, bool attacker_moves, int mate_plies,
                                       Move move) const {
  const Numbers numbers = attacker_wins == attacker_moves ? Numbers{0, kInfinite} : Numbers{kInfinite, 0};
  return {numbers, attacker_wins ? uint8_t(mate_plies) : kNoMate, move};
}

MoveList MateSolver::moves_of(const Position& position, bool at_root) const {
  MoveList legal;
  position.legal_moves(legal);
  if (!at_root || root_moves_.empty()) return legal;
  MoveList chosen;
  for (const Move move : legal) {
    if (std::find(root_moves_.begin(), root_moves_.end(), move) != root_moves_.end()) chosen.push(move);
  }
  return chosen;
}

// Searches until phi or delta reaches its limit, or the budget is used up.
MateSolver::Value MateSolver::search(const Position& position, int plies, Numbers limits, bool at_root) {
  const uint64_t before = positions_;
  const size_t first = children_.size();
  Value value;
  if (plies <= kLeafPlies) {
    value = solve_leaf(position, plies, at_root);
  } else {
    expand(position, plies, moves_of(position, at_root));
    for (;;) {
      size_t best = first;
      uint32_t second = kInfinite;
      value = sum_of(first, attacks(position), best, second);
      const Numbers& numbers = value.numbers;
      if (numbers.phi >= limits.phi || numbers.delta >= limits.delta || out_of_budget()) break;
      const Child& child = children_[best];
      // A quarter above the second-best child: fewer changes between the children.
      const Numbers child_limits{
          capped(uint64_t{limits.delta} + child.numbers.phi - numbers.delta),
          std::min(limits.phi, capped(uint64_t{second} + second / 4 + 1)),
      };
      Position after = position;
      after.play(child.move);
      const Value found = search(after, plies - 1, child_limits, false);
      children_[best].numbers = found.numbers;
      children_[best].mate_plies = found.mate_plies;
    }
    children_.resize(first);
  }
  progressed_ = true;
  // With some of the moves the root has another result than its position.
  if (!at_root || root_moves_.empty()) store(position, plies, value, positions_ - before);
  return value;
}

// Adds the children of a position. One that decides it stands alone.
void MateSolver::expand(const Position& position, int plies, const MoveList& moves) {
  const size_t first = children_.size();
  for (const Move move : moves) {
    Position after = position;
    after.play(move);
    ++positions_;
    const Child child = child_of(after, plies - 1, move);
    if (child.numbers.delta == 0) {
      children_.resize(first);
      children_.push_back(child);
      return;
    }
    children_.push_back(child);
  }
}

// The numbers of a new position come from its moves: few replies make a mate likely.
MateSolver::Child MateSolver::child_of(const Position& after, int plies, Move move) {
  const bool attacker_moves = attacks(after);
  const auto child = [move](const Value& value) { return Child{move, value.mate_plies, value.numbers}; };
  const bool drawn = is_drawn(after);
  if (!drawn) {
    if (const std::optional<Value> value = known(after, plies)) return child(*value);
  }
  const int count = after.legal_move_count();
  // Mate precedes the draws.
  if (count == 0) return child(value_of(!attacker_moves && after.in_check(), attacker_moves, 0));
  if (drawn) return child(value_of(false, attacker_moves, 0));
  return {move, kNoMate, {1, uint32_t(count)}};
}

// Returns the value of the children from `first` on, the index of the best and the delta of the second best.
MateSolver::Value MateSolver::sum_of(size_t first, bool attacker_moves, size_t& best,
                                     uint32_t& second) const {
  uint32_t phi = kInfinite;
  uint64_t delta = 0;
  int shortest = kNoMate - 1;
  int longest = -1;
  for (size_t i = first; i < children_.size(); ++i) {
    const Child& child = children_[i];
    if (child.numbers.delta < phi) {
      second = phi;
      phi = child.numbers.delta;
      best = i;
    } else {
      second = std::min(second, child.numbers.delta);
    }
    delta += child.numbers.phi;
    if (child.mate_plies != kNoMate) {
      shortest = std::min<int>(shortest, child.mate_plies);
      longest = std::max<int>(longest, child.mate_plies);
    }
  }
  const Move move = first < children_.size() ? children_[best].move : Move();
  if (phi == 0) return value_of(attacker_moves, attacker_moves, shortest + 1, move);
  if (delta == 0) return value_of(!attacker_moves, attacker_moves, longest + 1, move);
  return {{phi, std::min(capped(delta), kInfinite - 1)}, kNoMate, move};
}

// Solves a position with at most kLeafPlies left.
MateSolver::Value MateSolver::solve_leaf(const Position& position, int plies, bool at_root) {
  if (!attacks(position)) {
    const int mate_plies = plies_after_replies(position);
    return value_of(mate_plies != kRefuted, false, mate_plies, refutation_);
  }
  const MoveList moves = moves_of(position, at_root);
  if (const Move mate = mate_in_one(position, moves, positions_)) return value_of(true, true, 1, mate);
  if (plies < kLeafPlies) return value_of(false, true, 0);
  for (const Move move : moves) {
    Position after = position;
    after.play(move);
    ++positions_;
    const int mate_plies = plies_after_replies(after);
    if (mate_plies != kRefuted) return value_of(true, true, mate_plies + 1, move);
  }
  return value_of(false, true, 0);
}

// Returns the plies to mate if the defender is mated, or each reply allows a mate in one; else kRefuted. The
// last refutation is tried first: it often refutes the next move, too.
int MateSolver::plies_after_replies(const Position& position) {
  MoveList replies;
  position.legal_moves(replies);
  if (replies.empty()) return position.in_check() ? 0 : kRefuted;
  if (is_drawn(position)) return kRefuted;
  const Move first = refutation_;
  if (replies.contains(first) && refutes(position, first)) return kRefuted;
  for (const Move reply : replies) {
    if (reply != first && refutes(position, reply)) return kRefuted;
  }
  return 2;
}

bool MateSolver::refutes(const Position& position, Move reply) {
  Position after = position;
  after.play(reply);
  ++positions_;
  if (!is_drawn(after)) {
    MoveList moves;
    after.legal_moves(moves);
    if (mate_in_one(after, moves, positions_)) return false;
  }
  refutation_ = reply;
  return true;
}

// Returns what the table has about a position with `plies` left.
std::optional<MateSolver::Value> MateSolver::known(const Position& position, int plies) const {
  const ProofEntry* entry = table_.find(key(position));
  if (!entry) return std::nullopt;
  const bool attacker_moves = attacks(position);
  if (entry->mate_plies <= plies) return value_of(true, attacker_moves, entry->mate_plies);
  if (entry->no_mate_plies >= plies) return value_of(false, attacker_moves, 0);
  if (entry->plies == plies) return Value{entry->numbers, kNoMate, {}};
  return std::nullopt;
}

void MateSolver::store(const Position& position, int plies, const Value& value, uint64_t effort) {
  ProofEntry& entry = table_.at(key(position));
  const bool attacker_moves = attacks(position);
  entry.effort = std::max(entry.effort, uint8_t(std::bit_width(effort)));
  if (!value.numbers.solved()) {
    entry.plies = uint8_t(plies);
    entry.numbers = value.numbers;
  } else if (value.mate_plies != kNoMate) {
    if (value.mate_plies >= entry.mate_plies) return;
    entry.mate_plies = value.mate_plies;
    if (attacker_moves) entry.move = value.move;
  } else if (plies > entry.no_mate_plies) {
    entry.no_mate_plies = uint8_t(plies);
    if (!attacker_moves) entry.move = value.move;
  }
}

}  // namespace wavefront::mate
