// SPDX-License-Identifier: GPL-3.0-or-later
// Steps back: the root moves to a position before the top of the kept tree.
//
// The tree has no node for that position, so a new one becomes the top. It needs the network's priors before
// it can have children. Until then the earlier tree waits outside: it is the graft, with the moves that lead
// to it. Each node on the way gets the next one as a child as soon as it is expanded, and the last one gets
// the graft. Its visits then count in all nodes above it.

#include <algorithm>
#include <iterator>
#include <utility>

#include "tree/tree.h"

namespace wavefront::tree {

// Puts a new node above the top, which must be the root. way: the moves from there to the top. Returns false
// without memory.
bool Tree::step_back(std::span<const Move> way) {
  const ArenaIndex above = new_node();
  if (above == kNone) return false;
  Graft graft{root_, {way.begin(), way.end()}, above};
  if (graft_.subtree != kNone) {  // The top never had children.
    graft.subtree = graft_.subtree;
    graft.way.insert(graft.way.end(), graft_.way.begin(), graft_.way.end());
    release(root_);
  }
  graft_ = std::move(graft);
  root_ = above;
  return true;
}

// Makes the graft the top again if moves from the top lead to it. The nodes above it are discarded. Returns
// the number of these moves, otherwise 0.
size_t Tree::return_to_graft(std::span<const Move> moves) {
  const std::vector<Move>& way = graft_.way;
  if (graft_.subtree == kNone || moves.size() < way.size() ||
      !std::equal(way.begin(), way.end(), moves.begin())) {
    return 0;
  }
  release(root_);
  root_ = graft_.subtree;
  return std::exchange(graft_, {}).way.size();
}

// Called after the first visit of the node that the graft waits for: adds the graft, or the next node before
// it.
void Tree::attach_graft() {
  if (node(graft_.anchor)->state != NodeState::kExpanded) return;  // no memory for its edges
  std::vector<ArenaIndex> path{top()};
  while (path.back() != graft_.anchor) {
    const ArenaIndex* next = path.size() < graft_.way.size()
                                 ? slot_of(*node(path.back()), graft_.way[path.size() - 1], false)
                                 : nullptr;
    if (next == nullptr || *next == kNone) return drop_graft();
    path.push_back(*next);
  }
  const bool is_last = path.size() == graft_.way.size();
  const Move move = graft_.way[path.size() - 1];
  ArenaIndex* slot = slot_of(*node(path.back()), move, true);
  if (slot == nullptr || *slot == kNone) return drop_graft();
  if (!is_last) {
    graft_.anchor = *slot;
    return;
  }
  const Node before = *node(*slot);  // a new one
  arena_.free(*slot, kNodeGranules);
  *slot = std::exchange(graft_, {}).subtree;
  path.push_back(*slot);
  // Nodes above one that is on the way are updated when the root moves up.
  const auto told =
      std::find_if(path.rbegin(), path.rend(), [this](ArenaIndex i) { return is_on_the_way(i); });
  const std::span changed(std::prev(told.base()), path.end());
  account_above(changed, before);
  if (params_.sticky_endgames) prove(changed);
}

// Discards the graft.
void Tree::drop_graft() {
  if (graft_.subtree == kNone) return;
  release(std::exchange(graft_, {}).subtree);
  reset_hand();
}

}  // namespace wavefront::tree
