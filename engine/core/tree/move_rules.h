// SPDX-License-Identifier: GPL-3.0-or-later
// Moves that a search does not look at, or the only ones that it looks at, down to some depth.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "chess/position.h"
#include "tree/arena.h"
#include "tree/node.h"

namespace wavefront::tree {

struct MoveRule {
  Color side;                      // whose moves
  std::vector<std::string> moves;  // UCI text, castling in either spelling
  int until_depth;                 // holds for moves that are made less than so many plies below the root
  bool only;                       // these moves alone are searched; else all others

  bool operator==(const MoveRule&) const = default;
};

// The rules below the root, whose own moves Tree::set_root_moves chooses.
class MoveRules {
 public:
  MoveRules() = default;
  explicit MoveRules(std::vector<MoveRule> rules);

  // Whether a rule may hold for a move made so many plies below the root.
  bool reach(size_t depth) const { return depth < depth_; }

  // Which edges of a node may be searched, one flag each, in memory that the next call overwrites. Null: all,
  // as no rule holds there, or the rules leave none.
  const bool* allowed(const Arena& arena, const Node& node, const Position& position, size_t depth);

  bool operator==(const MoveRules& other) const { return rules_ == other.rules_; }

 private:
  bool allows(const Position& position, Move move, size_t depth) const;

  std::vector<MoveRule> rules_;
  size_t depth_ = 0;  // the deepest that any reaches
  std::unique_ptr<bool[]> allowed_;
};

}  // namespace wavefront::tree
