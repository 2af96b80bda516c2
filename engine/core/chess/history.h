// SPDX-License-Identifier: GPL-3.0-or-later
// A position with the preceding ones, for repetitions, the network input and walks in the tree.
#pragma once

#include <cstdint>
#include <vector>

#include "chess/position.h"

namespace wavefront::chess {

// The positions of a line of play, from a start position on. `push` and `pop` are cheap enough for walking a
// tree: no allocation after the first few hundred plies, and comparisons only up to the last irreversible
// move.
//
// `plies_back` counts from the current position, which is 0, and is less than `length()`.
class History {
 public:
  explicit History(const Position& start);

  const Position& current() const { return entries_.back().position; }
  int length() const { return int(entries_.size()); }  // number of positions, at least 1
  const Position& at(int plies_back) const { return entry(plies_back).position; }

  void push(Move move);  // a legal move
  void pop();            // takes the last push back; there must be one

  // Earlier occurrences of the position, by the rules of chess (en passant counts if it is legal).
  int repetitions(int plies_back = 0) const { return entry(plies_back).repetitions; }
  // Plies since its last occurrence; 0 if there is none.
  int plies_since_repetition(int plies_back = 0) const { return entry(plies_back).plies_since_repetition; }
  // True if lc0 treats the position as a repetition, which determines the network's input. lc0 compares
  // en-passant squares, so one without a legal capture makes a position different from later occurrences.
  bool repeated_for_network(int plies_back = 0) const { return entry(plies_back).repeated_for_network; }

 private:
  struct Entry {
    Position position;
    uint16_t repetitions;
    uint16_t plies_since_repetition;
    bool repeated_for_network;
  };

  const Entry& entry(int plies_back) const { return entries_[entries_.size() - 1 - size_t(plies_back)]; }
  void find_repetition(Entry& last) const;

  std::vector<Entry> entries_;
  std::vector<uint64_t> keys_;  // the positions' keys side by side, for a fast search
};

}  // namespace wavefront::chess
