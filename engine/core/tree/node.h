// SPDX-License-Identifier: GPL-3.0-or-later
// The two record types of the search tree, in the arena's granules.
//
//   Node, 40 bytes: one visited position.
//   +0  wl_sum      sum of W - L over its visits, for the side that moved INTO the node
//   +8  d           mean of D over its visits
//   +12 m           mean of the expected plies from the node to the end of the game
//   +16 visits      completed visits
//   +20 in_flight   20 bits: visits in flight through the node
//       ahead       12 bits: look-ahead positions below
//   +24 edges       legal moves and priors    +28 children    node of each edge, for a prefix of the edges
//   +32 edge_count  +33 child_slots  +34 state and epoch  +35 bounds
//   +36 own         16 bits: the network's W - L for the side to move; if values are derived from the
//                   children (values.cc), the value of its first visit
//   +38 spread      16 bits: variance of W - L over the visits, if the search uses it
//
//   Edge, 4 bytes: a legal move and its prior, 16 bits each. Edges are sorted by prior, best first.
//
// All unvisited edges of a node have the same first-play urgency, so the best of them is the first one. The
// visited ones are a prefix of the edges, and children only need slots for that prefix. (If a search is
// limited to some root moves, the slots of skipped ones hold kNone.) With 35 legal moves and the child slots,
// a visited node takes about 190 bytes.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "chess/move.h"
#include "tree/arena.h"

namespace wavefront::tree {

using namespace chess;

// Packs a prior in [0, 1] into 16 bits: 5 bits of exponent (2^-31 .. 1) and 11 bits of mantissa, rounded to
// nearest. The relative error is at most 2^-12. The packed values have the order of the priors.
inline uint16_t pack_prior(float prior) {
  constexpr int32_t kExponentOffset = 96 << 23;
  int32_t bits = std::bit_cast<int32_t>(prior) - kExponentOffset + (1 << 11);
  return static_cast<uint16_t>(std::max(bits, 0) >> 12);
}

inline float unpack_prior(uint16_t packed) {
  if (packed == 0) return 0.0f;
  return std::bit_cast<float>((static_cast<uint32_t>(packed) << 12) + (96u << 23));
}

struct Edge {
  // The prior is the upper half, so that the order of the words is the order of the priors.
  uint32_t word;

  Edge() = default;
  Edge(Move move, uint16_t packed_prior) : word((static_cast<uint32_t>(packed_prior) << 16) | move.raw()) {}
  Move move() const { return Move::from_raw(static_cast<uint16_t>(word)); }
  float prior() const { return unpack_prior(static_cast<uint16_t>(word >> 16)); }
};
static_assert(sizeof(Edge) == 4);

enum class NodeState : uint8_t {
  kNew,       // no edges: never visited, or collapsed to free memory; the next visit expands it
  kPending,   // its evaluation is in flight with a waiting visit
  kAhead,     // look-ahead: its evaluation is in flight without a waiting visit
  kExpanded,  // has edges
  kTerminal,  // the game is over by the rules, or tablebases know the result
  kTwoFold,   // draw by repeating a position of the searched line; may be undone
  kCached,    // look-ahead: has edges from the cache but no visits; own, d and m are the network's
};

// Proven bounds of the game value for the side that moved into the node: -1 loss, 0 draw, 1 win. by_tables: a
// win or loss proven by tablebases, which do not have the distance to mate. can_repeat: the side to move has
// a draw by repetition, if the search uses it (tree/values.cc).
struct Bounds {
  int8_t lower : 3;
  int8_t upper : 3;
  uint8_t by_tables : 1 = 0;
  uint8_t can_repeat : 1 = 0;

  static constexpr Bounds unknown() { return {-1, 1}; }
  static constexpr Bounds exact(int value) {
    return {static_cast<int8_t>(value), static_cast<int8_t>(value)};
  }
  static constexpr Bounds from_tables(int value) {
    return {static_cast<int8_t>(value), static_cast<int8_t>(value), static_cast<uint8_t>(value != 0)};
  }
  bool proven() const { return lower == upper; }
  bool operator==(const Bounds&) const = default;
};
static_assert(sizeof(Bounds) == 1);

// Added to the length of tablebase wins and losses for comparisons: longer than any mate.
inline constexpr float kBeyondMates = 16384.0f;

struct Node {
  double wl_sum;
  float d;
  float m;
  uint32_t visits;
  uint32_t in_flight : 20;
  uint32_t ahead : 12;
  union {
    ArenaIndex edges;
    uint32_t repeated_after;  // of a kTwoFold node (no edges): plies since the earlier occurrence
  };
  ArenaIndex children;
  uint8_t edge_count;
  uint8_t child_slots;
  NodeState state : 3;
  uint8_t epoch : 5;  // of the last visit (memory.cc)
  Bounds bounds;
  int16_t own;
  uint16_t spread;

  // An unvisited node.
  static Node fresh() {
    Node node{};
    node.state = NodeState::kNew;
    node.bounds = Bounds::unknown();
    return node;
  }
  float q() const { return static_cast<float>(wl_sum / visits); }
  // The error is at most 1 / 65534.
  float own_q() const { return static_cast<float>(own) / kOwnUnit; }
  void set_own_q(float q) { own = static_cast<int16_t>(std::lrint(std::clamp(q, -1.0f, 1.0f) * kOwnUnit)); }
  // Plies to the end of a proven win or loss, for comparisons.
  float proven_plies() const { return bounds.by_tables ? kBeyondMates + m : m; }
  bool has_edges() const { return state == NodeState::kExpanded || state == NodeState::kCached; }
  bool ends_game() const { return state == NodeState::kTerminal || state == NodeState::kTwoFold; }

  static constexpr float kOwnUnit = 32767.0f;
  static constexpr uint32_t kMostInFlight = (1u << 20) - 1;
  static constexpr uint32_t kMostAhead = (1u << 12) - 1;
};
static_assert(sizeof(Node) == 40 && sizeof(Node) % Arena::kGranuleBytes == 0);

inline constexpr int kNodeGranules = sizeof(Node) / Arena::kGranuleBytes;

// Part of the network's mean error after a move (bias.h). raw: the network's W - L for the side to move.
// first: that of the node's first visit. delta: mean value of its later visits, those of its moves, less raw.
// step: of their number when the delta was taken; 0: the node is no part of the mean.
struct BiasRecord {
  static constexpr uint64_t kNever = 63;  // step of a node that never is

  int64_t raw : 14 = 0, first : 14 = 0, delta : 14 = 0;
  uint64_t step : 6 = kNever, slot : 16 = 0;

  static constexpr double kUnit = 8191.0, kDeltaUnit = 4095.0;
  bool counts() const { return step != 0 && step != kNever; }
};
static_assert(sizeof(BiasRecord) == Arena::kGranuleBytes);

// Both lists pack two entries into a granule. The edges follow their node's record, mostly in one cache line.
inline constexpr int edge_granules(int edges) {
  return 1 + (edges + 1) / 2;
}

// Child lists grow by doubling: room for 2, 4, 8 .. entries.
inline int child_granules(int slots) {
  return slots == 0 ? 0 : static_cast<int>(std::bit_ceil(static_cast<unsigned>(slots + 1) / 2));
}

}  // namespace wavefront::tree
