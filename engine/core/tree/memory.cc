// SPDX-License-Identifier: GPL-3.0-or-later
// The memory of the tree: allocation of nodes, freeing of subtrees, and pruning of a full tree.
//
// Nothing here stops the search for long. Detached subtrees wait in a list, and each batch frees some. A full
// tree is pruned likewise: a hand goes around it, depth first, some nodes for each one needed, and collapses
// the least important nodes. Collapsing a node discards its moves and everything below. Its visits, value and
// bounds stay, as do those of the nodes above. If the search returns, it evaluates the node again.
//
// The least important nodes have few visits, long ago. A node has the epoch of its last visit. An epoch is
// the allocation of an eighth of the memory. The hand starts with leaves of one visit, and collapses larger
// nodes as small ones become rare. So details go before the skeleton of the tree. Nodes in flight or looked
// ahead to are never collapsed, so no visit or batch in flight refers to a freed node.

#include <algorithm>

#include "tree/tree.h"

namespace wavefront::tree {
namespace {

constexpr uint64_t kEpochsPerTree = 8;
constexpr uint32_t kEpochs = 32;  // epochs are stored modulo this

// Share of the memory that the hand keeps free in a full tree: 1 / 32.
constexpr size_t kRoomShare = 32;

// Nodes checked by the hand, or freed, per collected position.
constexpr size_t kNodesPerPosition = 8;

// The same if memory is still missing: first and last attempt.
constexpr size_t kNodesAtOnce = 256, kMostNodesAtOnce = 2048;

// Bytes allocated in a full tree between two moves of its memory to large pages, so that these take a small
// share of the time.
constexpr uint64_t kBytesPerPage = uint64_t{4} << 20;

// Minimum age of old nodes, in epochs.
constexpr uint32_t kOld = 2;

// Pressure is the binary logarithm of the maximum visits of a node to collapse. While there are old nodes,
// nodes with more than 1 / kSpared of the root's visits are spared.
constexpr int kMostPressure = 31;
constexpr uint32_t kSpared = 1024;

// Old nodes between two changes of pressure: it rises if few of them could be collapsed, and falls if most
// could.
constexpr int kNodesPerSetting = 512;

}  // namespace

// Returns kNone if there is no room after a limited effort. That affects edge lists of rare length, whose
// nodes then wait. Pruning much until there is room for them would be worse. One such effort per batch is
// enough.
ArenaIndex Tree::allocate(int granules) {
  ArenaIndex index = arena_.allocate(granules);
  if (index != kNone || granules >= hopeless_granules_) return index;
  for (size_t nodes = kNodesAtOnce; index == kNone && nodes <= kMostNodesAtOnce; nodes *= 2) {
    if (!make_room(nodes)) {
      out_of_memory_ = true;
      break;
    }
    index = arena_.allocate(granules);
  }
  if (index == kNone) hopeless_granules_ = granules;
  return index;
}

ArenaIndex Tree::new_node() {
  const ArenaIndex index = allocate(kNodeGranules);
  if (index != kNone) *node(index) = Node::fresh();
  return index;
}

// Returns memory for the edges of a position, which the CPU begins to fetch; kNone without memory.
ArenaIndex Tree::new_edges(size_t moves) {
  const int granules = edge_granules(static_cast<int>(moves));
  const ArenaIndex edges = allocate(granules);
  if (edges == kNone) return kNone;
  for (int granule = 0; granule < granules; granule += Arena::kLineGranules) {
    arena_.prefetch(edges + static_cast<ArenaIndex>(granule));
  }
  return edges + 1;  // after the record
}

void Tree::release(ArenaIndex subtree) {
  to_free_.push_back(subtree);
}

void Tree::free_some(size_t nodes) {
  for (; nodes > 0 && !to_free_.empty(); --nodes) {
    const ArenaIndex index = to_free_.back();
    to_free_.pop_back();
    Node& dead = *node(index);
    release_children(dead);
    arena_.free(index, kNodeGranules);
  }
}

// Detaches the subtrees below a node, and frees its lists.
void Tree::release_children(Node& parent) {
  if (!parent.has_edges()) return;
  for (int i = 0; i < parent.child_slots; ++i) {
    if (const ArenaIndex child = children_of(parent)[i]; child != kNone) release(child);
  }
  if (params_.corrects_values()) forget_bias(parent);
  arena_.free(parent.edges - 1, edge_granules(parent.edge_count));
  if (parent.child_slots > 0) arena_.free(parent.children, child_granules(parent.child_slots));
}

// Returns the epoch once the arena has allocated this number of bytes, freed ones included.
uint32_t Tree::epoch_after(uint64_t handed_out_bytes) const {
  const auto capacity = static_cast<uint64_t>(arena_.capacity_bytes());
  return static_cast<uint32_t>(handed_out_bytes / (capacity / kEpochsPerTree)) % kEpochs;
}

// Called before `positions` are collected: frees some detached nodes, or prunes a full tree.
void Tree::keep_room(size_t positions) {
  const auto capacity = static_cast<uint64_t>(arena_.capacity_bytes());
  epoch_ = epoch_after(arena_.handed_out_bytes());
  hopeless_granules_ = Arena::kMaxRun + 1;
  out_of_memory_ = false;
  if (full_ && arena_.handed_out_bytes() >= next_page_at_) {
    arena_.enlarge_next_page();
    next_page_at_ = arena_.handed_out_bytes() + kBytesPerPage;
  }
  if (!to_free_.empty()) {
    free_some(positions * kNodesPerPosition);
  } else if (arena_.used_bytes() > capacity - capacity / kRoomShare) {
    prune_some(positions * kNodesPerPosition);
  }
}

// Frees memory. Returns false if there is none to free.
bool Tree::make_room(size_t nodes) {
  if (to_free_.empty()) return prune_some(nodes);
  free_some(nodes);
  return true;
}

// Checks `nodes` nodes, and collapses the least important ones. Returns false if none is left to collapse.
bool Tree::prune_some(size_t nodes) {
  full_ = true;
  for (; nodes > 0; --nodes) {
    if (hand_.empty()) {
      if (!begin_round()) return false;
      continue;
    }
    HandStep& step = hand_.back();
    const Node& parent = *node(step.node);
    if (step.slot >= parent.child_slots) {
      hand_.pop_back();
      continue;
    }
    const ArenaIndex index = children_of(parent)[step.slot++];
    if (index == kNone) continue;
    Node& current = *node(index);
    if (may_collapse(current) && !is_on_the_way(index)) {
      collapse(current);
    } else if (current.child_slots > 0) {
      for (int i = 0; i < current.child_slots; ++i) arena_.prefetch(children_of(current)[i]);
      hand_.push_back({index, 0});
    }
  }
  return true;
}

// Restarts the hand at the top. If the last round found nothing, it accepts younger nodes, and finally any.
bool Tree::begin_round() {
  if (collapsed_in_round_ > 0) {
    old_ = kOld;
  } else if (old_ > 0) {
    --old_;
  } else if (pressure_ < kMostPressure) {
    pressure_ = kMostPressure;
  } else {
    return false;
  }
  collapsed_in_round_ = 0;
  if (graft_.subtree != kNone) hand_.push_back({graft_.subtree, 0});
  hand_.push_back({top(), 0});
  return true;
}

bool Tree::may_collapse(const Node& candidate) {
  if (candidate.in_flight > 0 || candidate.ahead > 0 || (epoch_ - candidate.epoch) % kEpochs < old_)
    return false;
  uint32_t most = uint32_t{1} << pressure_;
  if (old_ > 0) most = std::min(most, std::max(1u, node(root_)->visits / kSpared));
  const bool small = candidate.has_edges() && candidate.visits <= most;
  if (small) ++collapsed_;
  if (++looked_at_ >= kNodesPerSetting) {
    if (collapsed_ > kNodesPerSetting / 2 && pressure_ > 0) --pressure_;
    if (collapsed_ < kNodesPerSetting / 8 && pressure_ < kMostPressure) ++pressure_;
    looked_at_ = collapsed_ = 0;
  }
  return small;
}

void Tree::collapse(Node& old) {
  release_children(old);
  old.edges = old.children = kNone;
  old.edge_count = old.child_slots = 0;
  if (old.state == NodeState::kCached) old.d = old.m = 0.0f;
  old.state = NodeState::kNew;
  old.bounds.can_repeat = 0;
  ++collapsed_in_round_;
}

// Resets the hand for another root.
void Tree::reset_hand() {
  hand_.clear();
  pressure_ = 0;
  old_ = kOld;
  looked_at_ = collapsed_ = 0;
  collapsed_in_round_ = 1;
}

}  // namespace wavefront::tree
