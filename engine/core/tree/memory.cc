// SPDX-License-Identifier: GPL-3.0-or-later
// The memory of the tree: what nodes take, how subtrees are given back, and what goes first when it is full.
//
// Nothing here stops the search for long. Detached subtrees wait in a list and are freed a little with each
// batch. A full tree is pruned in the same way: a hand goes round it, depth first, a few nodes for each that
// is wanted, and collapses what matters least. Collapsing a node forgets its moves and all that lies below;
// its visits, its value and its bounds stay, and so do those of every node above. If the search comes back,
// it evaluates the node again.
//
// What matters least: nodes with few visits that the search has not come to for a long time. A node carries
// the epoch of its last visit; an epoch lasts as long as an eighth of the memory is handed out. The hand
// begins with leaves of one visit and collapses larger nodes as small ones become rare, so details go before
// the skeleton of the tree. What is in flight or looked ahead to is never touched: no visit, batch or
// reference of one that is in flight can meet a node that has gone.

#include <algorithm>

#include "tree/tree.h"

namespace wavefront::tree {
namespace {

constexpr uint64_t kEpochsPerTree = 8;
constexpr uint32_t kEpochs = 32;  // stamps are counted modulo this

// Room that a full tree keeps free, as a part of its memory: the hand goes on ahead of what is wanted.
constexpr size_t kRoomShare = 32;

// Nodes that the hand looks at, or that are freed, for each position gathered.
constexpr size_t kNodesPerPosition = 8;

// And where memory is lacking all the same: at first, and at last.
constexpr size_t kNodesAtOnce = 256, kMostNodesAtOnce = 2048;

// The age in epochs from which on nodes are old.
constexpr uint32_t kOld = 2;

// Pressure is the logarithm of the most visits that a node may have to be collapsed. As long as anything is
// found, no node goes that has more than this part of the root's visits.
constexpr int kMostPressure = 31;
constexpr uint32_t kSpared = 1024;

// After so many nodes that are old pressure is set anew: higher where few of them could be collapsed, lower
// where most could.
constexpr int kNodesPerSetting = 512;

// Asks for memory that is read soon: the hand goes where nothing has been for long.
inline void prefetch([[maybe_unused]] const void* address) {
#ifdef __GNUC__
  __builtin_prefetch(address);
#endif
}

}  // namespace

// kNone if there is no room, and little effort makes none. That befalls edge lists of rare length, whose
// nodes then wait for theirs; it is better than pruning much until room for them is found. One such effort
// for each batch is enough.
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

// Cuts off what lies below a node, and frees its lists.
void Tree::release_children(Node& parent) {
  if (parent.state != NodeState::kExpanded) return;
  for (int i = 0; i < parent.child_slots; ++i) {
    if (const ArenaIndex child = children_of(parent)[i]; child != kNone) release(child);
  }
  arena_.free(parent.edges, edge_granules(parent.edge_count));
  if (parent.child_slots > 0) arena_.free(parent.children, child_granules(parent.child_slots));
}

// Before `positions` are gathered: frees some of what was detached, and in a full tree looks for more.
void Tree::keep_room(size_t positions) {
  const auto capacity = static_cast<uint64_t>(arena_.capacity_bytes());
  epoch_ = static_cast<uint32_t>(arena_.handed_out_bytes() / (capacity / kEpochsPerTree)) % kEpochs;
  hopeless_granules_ = Arena::kMaxRun + 1;
  out_of_memory_ = false;
  if (!to_free_.empty()) {
    free_some(positions * kNodesPerPosition);
  } else if (arena_.used_bytes() > capacity - capacity / kRoomShare) {
    prune_some(positions * kNodesPerPosition);
  }
}

// Gives memory back where some is lacking. False if there is none to give.
bool Tree::make_room(size_t nodes) {
  if (to_free_.empty()) return prune_some(nodes);
  free_some(nodes);
  return true;
}

// Looks at so many nodes and collapses those that matter least. False if nothing is left to collapse.
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
      for (int i = 0; i < current.child_slots; ++i) prefetch(node(children_of(current)[i]));
      hand_.push_back({index, 0});
    }
  }
  return true;
}

// Lets the hand begin at the top again. If it has found nothing, younger nodes must do, and at last any.
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
  hand_.push_back({top(), 0});
  return true;
}

bool Tree::may_collapse(const Node& candidate) {
  if (candidate.in_flight > 0 || candidate.ahead > 0 || (epoch_ - candidate.epoch) % kEpochs < old_)
    return false;
  uint32_t most = uint32_t{1} << pressure_;
  if (old_ > 0) most = std::min(most, std::max(1u, node(root_)->visits / kSpared));
  const bool small = candidate.state == NodeState::kExpanded && candidate.visits <= most;
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
  old.state = NodeState::kNew;
  old.bounds.can_repeat = 0;
  ++collapsed_in_round_;
}

// For another root, of whose tree nothing is known yet.
void Tree::reset_hand() {
  hand_.clear();
  pressure_ = 0;
  old_ = kOld;
  looked_at_ = collapsed_ = 0;
  collapsed_in_round_ = 1;
}

}  // namespace wavefront::tree
