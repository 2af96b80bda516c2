// SPDX-License-Identifier: GPL-3.0-or-later
// Rules that exclude moves from a search, or limit it to moves, down to a depth.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "chess/position.h"
#include "tree/arena.h"
#include "tree/node.h"

namespace wavefront::tree {

struct MoveRule {
  Color side;                      // that makes the moves
  std::vector<std::string> moves;  // UCI text, castling in either notation
  int until_depth;                 // applies to moves less than this many plies below the root
  bool only;                       // true: search only these moves; false: all others

  bool operator==(const MoveRule&) const = default;
};

// The rules below the root. Tree::set_root_moves limits the root's moves.
class MoveRules {
 public:
  MoveRules() = default;
  explicit MoveRules(std::vector<MoveRule> rules);

  // Returns true if a rule may apply to a move `depth` plies below the root.
  bool reach(size_t depth) const { return depth < depth_; }

  // Returns a flag per edge of a node that may be searched, in memory that the next call overwrites. Null:
  // all, because no rule applies, or the rules leave none.
  const bool* allowed(const Arena& arena, const Node& node, const Position& position, size_t depth);

  bool operator==(const MoveRules& other) const { return rules_ == other.rules_; }

 private:
  bool allows(const Position& position, Move move, size_t depth) const;

  std::vector<MoveRule> rules_;
  size_t depth_ = 0;  // maximum depth of all rules
  std::unique_ptr<bool[]> allowed_;
};

}  // namespace wavefront::tree
