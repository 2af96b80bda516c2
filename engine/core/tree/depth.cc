// SPDX-License-Identifier: GPL-3.0-or-later
// Estimation of the depth of a kept tree.

#include <algorithm>
#include <random>

#include "tree/tree.h"

namespace wavefront::tree {
namespace {

// Number of sampled visits: the error of the mean is about a third of a ply, and any tree takes a
// millisecond.
constexpr int kSamples = 128;

}  // namespace

// Walks choose children in proportion to their visits, and end with a node's own visits. So they end like
// randomly chosen visits.
void Tree::estimate_kept_depth() {
  const Node& root = *node(root_);
  kept_visits_ = root.visits;
  if (root.visits == 0) return;
  std::mt19937_64 generator(root.visits);  // the same tree, the same estimate
  uint64_t sum = 0;
  for (int sample = 0; sample < kSamples; ++sample) {
    uint32_t depth = 0;
    const Node* at = &root;
    while (at != nullptr && at->state == NodeState::kExpanded) {
      uint64_t visit = std::uniform_int_distribution<uint64_t>(0, std::max(at->visits, 1u) - 1)(generator);
      const Node* next = nullptr;
      for (int i = 0; i < at->child_slots && next == nullptr; ++i) {
        const ArenaIndex index = children_of(*at)[i];
        if (index == kNone) continue;
        const Node* child = node(index);
        if (visit < child->visits) {
          next = child;
        } else {
          visit -= child->visits;
        }
      }
      at = next;
      depth += next != nullptr ? 1 : 0;
    }
    sum += depth;
    max_depth_ = std::max(max_depth_, depth);
  }
  kept_depth_ = static_cast<double>(sum) / kSamples;
}

}  // namespace wavefront::tree
