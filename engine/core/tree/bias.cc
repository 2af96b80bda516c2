// SPDX-License-Identifier: GPL-3.0-or-later
#include "tree/bias.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "chess/mix.h"
#include "tree/tree.h"

namespace wavefront::tree {
namespace {

// Units of the weight of one visit's error. That of more visits grows with their number to the power
// kExponent.
constexpr double kWeightUnit = 16.0, kExponent = 0.85;

// Added to the weight of an entry, in visits: few visits say little. 3 instead of 0 removed 6.3 instead
// of 5.9 % of the network's error, in 40 positions of 4,000 nodes.
constexpr double kPriorWeight = 3.0 * kWeightUnit;

// Odd multipliers of the words of a key.
constexpr uint64_t kFactors[] = {0xc2b2ae3d27d4eb4f, 0x165667b19e3779f9, 0xd6e8feb86659fd93,
                                 0xa0761d6478bd642f};

}  // namespace

uint16_t bias_slot(const chess::History& history) {
  const Position &after = history.current(), &before = history.at(std::min(1, history.length() - 1));
  const Color mover = before.side_to_move();
  const Bitboard was = before.pieces(mover), is = after.pieces(mover), reached = is & ~was;
  // In Chess960 king and rook may change places.
  const Square to = first_square(reached != 0 ? reached : is);
  const auto types = static_cast<uint64_t>(after.piece_on(to) << 4 | before.piece_on(to));
  const uint64_t key = (was & ~is) * kFactors[0] + reached * kFactors[1] + types * kFactors[2] +
                       static_cast<uint64_t>(mover) * kFactors[3];
  return static_cast<uint16_t>(mix(key) >> 48);
}

void BiasEntry::add(const BiasRecord& record, int sign) {
  static const auto weights = [] {
    std::array<int64_t, 64> made{};
    for (size_t i = 1; i < made.size(); ++i) {
      made[i] = std::llrint(kWeightUnit * std::exp2((static_cast<double>(i) - 1) / 2 * kExponent));
    }
    return made;
  }();
  sum += sign * weights[record.step] * record.delta;
  weight += sign * weights[record.step];
}

// Called before the first visit of a node with edges. raw: the network's W - L for the side to move. value:
// what the visit brings. Returns it, plus the mean of what the network missed after this move if it is the
// network's value. W and L change, D does not.
Value Tree::corrected(const Node& leaf, uint16_t slot, float raw, Value value, bool from_network) {
  if (from_network) {
    const BiasEntry& entry = errors_[slot];
    const double weight = static_cast<double>(entry.weight) + kPriorWeight;
    const double error = static_cast<double>(entry.sum) / (weight * BiasRecord::kDeltaUnit);
    const float most = std::max(std::abs(raw), 1.0f - value.d);
    value.q = std::clamp(raw + static_cast<float>(params_.subtree_value_bias * error), -most, most);
  }
  if (leaf.state != NodeState::kExpanded) return value;  // no memory for its edges
  BiasRecord& record = bias_record(leaf);
  const auto rounded = [](float q) { return std::lrint(std::clamp(q, -1.0f, 1.0f) * BiasRecord::kUnit); };
  record.slot = slot;
  record.raw = rounded(raw);
  record.first = rounded(value.q);
  // With earlier visits, from before the tree was pruned, the value of its moves is not known.
  record.step = leaf.visits == 0 ? 0 : BiasRecord::kNever;
  return value;
}

// Replaces what a node adds to its entry.
void Tree::note_bias(const Node& searched) {
  if (searched.state != NodeState::kExpanded) return;
  BiasRecord& record = bias_record(searched);
  forget_bias(searched);
  if (searched.bounds.proven() || record.step == BiasRecord::kNever || searched.visits < 2) return;
  const uint32_t visits = searched.visits - 1;
  const double q = -(record.first / BiasRecord::kUnit + searched.wl_sum) / visits;
  const double delta = std::clamp(q - record.raw / BiasRecord::kUnit, -2.0, 2.0);
  record.delta = std::lrint(delta * BiasRecord::kDeltaUnit);
  record.step = bias_step(visits);
  errors_[record.slot].add(record, 1);
}

// Removes what a node with edges adds to its entry.
void Tree::forget_bias(const Node& searched) {
  BiasRecord& record = bias_record(searched);
  if (!record.counts()) return;
  errors_[record.slot].add(record, -1);
  record.step = 0;
}

}  // namespace wavefront::tree
