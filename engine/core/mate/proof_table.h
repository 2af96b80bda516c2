// SPDX-License-Identifier: GPL-3.0-or-later
// The transposition table of the mate search: what is known about mates from each position.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "chess/move.h"

namespace wavefront::mate {

// Numbers of a position that is solved: zero for the side that reached its goal, infinite for the other.
inline constexpr uint32_t kInfinite = 1u << 30;

// The proof and disproof number of a position, from the view of the side to move (Nagai's phi and delta).
// phi: least number of positions to solve until it reaches its goal. delta: the same for the opponent.
struct Numbers {
  uint32_t phi;
  uint32_t delta;

  bool solved() const { return phi == 0 || delta == 0; }
};

// 24 bytes. A key of 0 marks a free entry.
struct ProofEntry {
  static constexpr uint8_t kNoMate = 255;

  uint64_t key = 0;
  Numbers numbers{1, 1};  // for a mate within `plies`
  chess::Move move;       // attacker: leads to the mate within `mate_plies`; defender: last refutation
  uint8_t plies = 0;
  uint8_t mate_plies = kNoMate;  // there is a mate in at most this number of plies
  uint8_t no_mate_plies = 0;     // there is none in at most this number
  uint8_t effort = 0;            // log2 of the positions that were searched below
};

// Clusters of four entries, found by the upper bits of the key. A new position replaces the entry of its
// cluster with the least effort. The table starts small and doubles, up to two thirds of `most_bytes`: old
// and new entries together stay below it while they are copied.
class ProofTable {
 public:
  explicit ProofTable(size_t most_bytes);

  // Returns the entry of a position, or null. Valid until the next `at`.
  const ProofEntry* find(uint64_t key) const;
  // Returns the entry of a position, new if there is none. Valid until the next call.
  ProofEntry& at(uint64_t key);

  size_t bytes() const { return entries_.size() * sizeof(ProofEntry); }
  // Entries in use, in thousandths of those that the table can have.
  int fill() const;

 private:
  static constexpr size_t kCluster = 4;

  size_t cluster(uint64_t key) const { return size_t(key >> shift_) * kCluster; }
  ProofEntry& place(uint64_t key);
  void grow();

  size_t most_entries_;
  int shift_;
  size_t used_ = 0;
  std::vector<ProofEntry> entries_;
};

}  // namespace wavefront::mate
