// SPDX-License-Identifier: GPL-3.0-or-later
#include "tree/move_rules.h"

#include <algorithm>
#include <stdexcept>

#include "chess/uci_move.h"

namespace wavefront::tree {

MoveRules::MoveRules(std::vector<MoveRule> rules) : rules_(std::move(rules)) {
  for (const MoveRule& rule : rules_) {
    if (rule.until_depth < 1) throw std::invalid_argument("a rule holds for a depth of at least 1");
    depth_ = std::max(depth_, static_cast<size_t>(rule.until_depth));
  }
}

bool MoveRules::allows(const Position& position, Move move, size_t depth) const {
  const std::string spellings[] = {move_to_uci(position, move, false), move_to_uci(position, move, true)};
  return std::all_of(rules_.begin(), rules_.end(), [&](const MoveRule& rule) {
    if (rule.side != position.side_to_move() || depth >= static_cast<size_t>(rule.until_depth)) return true;
    const bool named = std::find_first_of(rule.moves.begin(), rule.moves.end(), std::begin(spellings),
                                          std::end(spellings)) != rule.moves.end();
    return named == rule.only;
  });
}

const bool* MoveRules::allowed(const Arena& arena, const Node& node, const Position& position, size_t depth) {
  if (!reach(depth)) return nullptr;
  if (!allowed_) allowed_ = std::make_unique<bool[]>(256);
  const Edge* edges = arena.at<Edge>(node.edges);
  bool some = false;
  for (int i = 0; i < node.edge_count; ++i) {
    some |= allowed_[i] = allows(position, edges[i].move(), depth);
  }
  return some ? allowed_.get() : nullptr;
}

}  // namespace wavefront::tree
