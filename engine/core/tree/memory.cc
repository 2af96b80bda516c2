// The memory of the tree: what nodes take, how subtrees are given back, and what goes first when it is full.
//
// Nothing here stops the search for long. Subtrees cut off wait in a list and are freed a little with each
// batch. A full tree is pruned in the same way: a hand goes round it, depth first, a few nodes for each that
// is wanted, and collapses what matters least. Collapsing a node forgets its moves and all that lies below;
// its visits, its value and its bounds stay, and so do those of every node above. If the search comes back,
// it evaluates the node again.
//
// What matters least: nodes with few visits that the search has not come to for a long time. A node carries
// the epoch of its last visit; an epoch lasts as long as an eighth of the memory is handed out. The hand
// begins with leaves of one visit and collapses larger nodes as small ones become rare, so details go before
// the skeleton of the tree. What is in flight is never touched: no visit, batch or reference of one that is
// under way can meet a node that has gone.

#include <algorithm>
#include <limits>

#include "tree/tree.h"

namespace wavefront {
namespace {

constexpr uint64_t kEpochsPerTree = 8;
constexpr uint32_t kEpochs = 32;  // stamps are counted modulo this

// Room that a full tree keeps free, as a part of its memory: the hand goes on ahead of what is wanted.
constexpr size_t kRoomShare = 32;

// Nodes that the hand looks at, or that are freed, for each position gathered.
constexpr size_t kNodesPerPosition = 8;

// And at a time where memory is lacking all the same.
constexpr size_t kNodesAtOnce = 256;

// What the hand collapses, from pressure to pressure: nodes with at most so many visits that were last
// visited at least so many epochs ago.
struct Collapsible {
  uint32_t visits;
  uint32_t age;
};
constexpr Collapsible kCollapsible[] = {
    {1, 2},  {2, 2},  {4, 2},  {8, 2},  {16, 2},
    {32, 2}, {64, 2}, {64, 1}, {64, 0}, {std::numeric_limits<uint32_t>::max(), 0}};
constexpr int kMostPressure = static_cast<int>(std::size(kCollapsible)) - 1;
// As far as it goes as long as something is found in a round at all.
constexpr int kUsualPressure = 6;

// After so many nodes that are old enough pressure is set anew.
constexpr int kNodesPerSetting = 512;

}  // namespace

ArenaIndex Tree::allocate(int granules) {
  ArenaIndex index = arena_.allocate(granules);
  while (index == kNone && make_room()) index = arena_.allocate(granules);
  if (index == kNone) out_of_memory_ = true;
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
    if (dead.state == NodeState::kTwoFold) --two_fold_nodes_;
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

// Before `positions` are gathered: frees some of what was cut off, and in a full tree looks for more.
void Tree::keep_room(size_t positions) {
  const auto capacity = static_cast<uint64_t>(arena_.capacity_bytes());
  epoch_ = static_cast<uint32_t>(arena_.handed_out_bytes() / (capacity / kEpochsPerTree)) % kEpochs;
  if (!to_free_.empty()) {
    free_some(positions * kNodesPerPosition);
  } else if (arena_.used_bytes() > capacity - capacity / kRoomShare) {
    prune_some(positions * kNodesPerPosition);
  }
}

// Gives memory back where some is lacking. False if there is none to give.
bool Tree::make_room() {
  if (to_free_.empty()) return prune_some(kNodesAtOnce);
  free_some(kNodesAtOnce);
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
    if (may_collapse(current)) {
      collapse(current);
    } else if (current.child_slots > 0) {
      hand_.push_back({index, 0});
    }
  }
  return true;
}

// Lets the hand begin at the top again. Only if it has found nothing is pressure raised beyond the usual.
bool Tree::begin_round() {
  if (collapsed_in_round_ > 0) {
    pressure_ = std::min(pressure_, kUsualPressure);
  } else if (pressure_++ == kMostPressure) {
    pressure_ = kUsualPressure;
    return false;
  }
  collapsed_in_round_ = 0;
  hand_.push_back({root_, 0});
  return true;
}

bool Tree::may_collapse(const Node& candidate) {
  const Collapsible limit = kCollapsible[pressure_];
  const uint32_t age = (epoch_ - candidate.epoch) % kEpochs;
  if (candidate.in_flight > 0 || age < limit.age) return false;
  const bool small = candidate.state == NodeState::kExpanded && candidate.visits <= limit.visits;
  if (small) ++collapsed_;
  if (++looked_at_ >= kNodesPerSetting) {
    // Where most are small, smaller ones will do.
    if (collapsed_ > kNodesPerSetting / 2) pressure_ = std::max(pressure_ - 1, 0);
    if (collapsed_ < kNodesPerSetting / 8)
      pressure_ = std::max(pressure_, std::min(pressure_ + 1, kUsualPressure));
    looked_at_ = collapsed_ = 0;
  }
  return small;
}

void Tree::collapse(Node& old) {
  release_children(old);
  old.edges = old.children = kNone;
  old.edge_count = old.child_slots = 0;
  old.state = NodeState::kNew;
  ++collapsed_in_round_;
}

// For another root, of whose tree nothing is known yet.
void Tree::reset_hand() {
  hand_.clear();
  pressure_ = 0;
  looked_at_ = collapsed_ = 0;
  collapsed_in_round_ = 1;
}

}  // namespace wavefront
