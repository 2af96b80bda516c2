// SPDX-License-Identifier: GPL-3.0-or-later
// Detection of repetitions: compare keys back to the last irreversible move, then whole positions.
#include "chess/history.h"

#include <algorithm>

namespace wavefront::chess {

namespace {
constexpr size_t kUsualPlies = 64;
}

History::History(const Position& start) {
  entries_.reserve(kUsualPlies);
  keys_.reserve(kUsualPlies);
  entries_.push_back({start, 0, 0, false});
  keys_.push_back(start.key());
}

void History::push(Move move) {
  Entry next{current(), 0, 0, false};
  next.position.play(move);
  if (next.position.rule50() >= 4) find_repetition(next);
  keys_.push_back(next.position.key());
  entries_.push_back(next);
}

void History::pop() {
  entries_.pop_back();
  keys_.pop_back();
}

void History::find_repetition(Entry& last) const {
  const uint64_t key = last.position.key();
  const int plies = int(keys_.size());  // the index that `last` will have
  const int oldest = std::max(0, plies - last.position.rule50());
  for (int i = plies - 4; i >= oldest; i -= 2) {
    if (keys_[size_t(i)] != key) continue;
    const Entry& earlier = entries_[size_t(i)];
    if (!earlier.position.same_by_rules(last.position)) continue;
    last.repetitions = uint16_t(earlier.repetitions + 1);
    last.plies_since_repetition = uint16_t(plies - i);
    // Only the oldest of these positions, after a pawn move or at the start, can have an en-passant square.
    // So this nearest occurrence decides lc0's comparison, too.
    last.repeated_for_network = earlier.position.en_passant() == kNoSquare;
    return;
  }
}

}  // namespace wavefront::chess
