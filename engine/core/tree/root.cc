// SPDX-License-Identifier: GPL-3.0-or-later
// The root: finding a new position in the tree of earlier searches.
//
// The kept tree begins at the top: the root, or a position shortly before it. During pondering on an expected
// move, the position before it stays with its other moves. So the search continues with any move played. A
// search below the top does not change the nodes above its root. They are updated when the root moves up
// again.
//
// If a game starts at a position of the tree, as analysis programs send it, its search continues there. It
// has no history, but the tree may have used one. Visits undo repetitions of positions above the new root, as
// after any move. But draws proven by a threefold repetition may not exist without the earlier positions. A
// tree with any is cleared. Evaluations stay, although the network's input may have had positions before the
// root.

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <utility>

#include "chess/fen.h"
#include "tree/tree.h"

namespace wavefront::tree {
namespace {

// Maximum plies below the top at which a game's start is searched.
constexpr int kPliesToStart = 4;

bool same_start(const Game& a, const Game& b) {
  return a.chess960 == b.chess960 && to_fen(a.start, a.chess960) == to_fen(b.start, b.chess960);
}

// Returns true if `plies` plies might lead from one position to another: each changes two squares, en passant
// three, and castling, once for each side, four.
bool may_lead_to(const Position& from, const Position& to, int plies) {
  Bitboard differing = from.pieces(kWhite) ^ to.pieces(kWhite);
  differing |= from.pieces(kBlack) ^ to.pieces(kBlack);
  for (PieceType type : {kPawn, kKnight, kBishop, kRook, kQueen, kKing}) {
    differing |= from.pieces(type) ^ to.pieces(type);
  }
  return std::popcount(differing) <= std::min(4 * plies, 3 * plies + 2);
}

}  // namespace

uint32_t Tree::set_position(const Game& game, int keep_before) {
  std::lock_guard lock(mutex_);
  if (batches_in_flight_ > 0) throw std::logic_error("the position cannot change while a batch is in flight");
  if (!game.playable())
    throw std::invalid_argument("the side to move could take the king: no move can be played");
  if (keep_before < 0) throw std::invalid_argument("the number of positions to keep cannot be negative");
  const ArenaIndex old_root = root_;
  root_moves_.clear();
  root_noise_.reset();
  reset_hand();
  if (!follow(game, static_cast<size_t>(keep_before))) {
    reset_root();
  } else if (root_ != old_root) {
    edges_before_noise_.clear();
    forget_bare_root();
  }
  game_ = game;
  history_ = game.history;
  reset_counters();
  rank_root_moves();
  update_root_edges();
  return node(root_)->visits;
}

// Moves the root from the top of the kept tree to the position of a game. Detaches everything else, except
// the other moves of the last `keep` positions before it, and for a step back. Returns false if the tree does
// not have the position.
bool Tree::follow(const Game& game, size_t keep) {
  if (!game_) return false;
  const Position top = game_->history.at(static_cast<int>(above_.size()));
  const size_t top_ply = game_->moves.size() - above_.size();
  climb();
  const std::span<const Move> before(game_->moves.data(), top_ply), moves(game.moves);
  if (same_start(*game_, game)) {
    const size_t common = std::min(top_ply, moves.size());
    if (std::equal(before.begin(), before.begin() + static_cast<std::ptrdiff_t>(common), moves.begin())) {
      if (common < top_ply) return keep > 0 && step_back(before.subspan(common));
      std::span<const Move> rest = moves.subspan(top_ply);
      rest = rest.subspan(return_to_graft(rest));
      const bool found = descend_to(rest, keep);
      if (rest.size() > keep) drop_graft();  // Its place is gone.
      return found;
    }
  }
  std::vector<Move> way;
  if (third_repetitions_ || game.chess960 != game_->chess960 ||
      !find_position(game.start, top, root_, kPliesToStart, way)) {
    return false;
  }
  std::reverse(way.begin(), way.end());
  drop_graft();
  return descend_to(way, 0) && descend_to(moves, keep);
}

// Makes the top the root, and updates it and the nodes on the way with the results below.
void Tree::climb() {
  while (!above_.empty()) {
    const Above step = above_.back();
    above_.pop_back();
    Node& parent = *node(step.node);
    account_for_change(parent, step.child_before, *node(root_));
    if (params_.sticky_endgames) tighten(parent);
    if (params_.adjusts_values()) note_repetitions(parent);
    if (params_.corrects_values()) note_bias(parent);
    root_ = step.node;
  }
}

// Moves the root down the tree. The last `keep` positions passed stay above it, the others are detached.
// Returns false if a move leaves the tree.
bool Tree::descend_to(std::span<const Move> moves, size_t keep) {
  for (size_t i = 0; i < moves.size(); ++i) {
    const bool kept = moves.size() - i <= keep;
    ArenaIndex* slot = slot_of(*node(root_), moves[i], kept);
    if (slot == nullptr || *slot == kNone) return false;
    ArenaIndex next = *slot;
    if (kept) {
      above_.push_back({root_, *node(next)});
    } else {
      *slot = kNone;
      release(root_);
    }
    root_ = next;
  }
  return true;
}

// Returns the slot of a move's node; null if the tree has none. make: create a missing slot and node.
ArenaIndex* Tree::slot_of(Node& parent, Move move, bool make) {
  if (parent.state != NodeState::kExpanded) return nullptr;
  const Edge* edges = arena_.at<Edge>(parent.edges);
  const Edge* edge =
      std::find_if(edges, edges + parent.edge_count, [move](Edge e) { return e.move() == move; });
  const int number = static_cast<int>(edge - edges);
  if (number == parent.edge_count) return nullptr;
  if (number >= parent.child_slots && (!make || !grow_children(parent, number + 1))) return nullptr;
  ArenaIndex& slot = children_of(parent)[number];
  if (slot == kNone && make) slot = new_node();
  return &slot;
}

// Finds the moves from a node's position to another one, last first. Returns false if it is not in the tree
// within `plies` plies.
bool Tree::find_position(const Position& wanted, const Position& position, ArenaIndex index, int plies,
                         std::vector<Move>& way) const {
  if (position.rule50() == wanted.rule50() && position.same_by_rules(wanted)) return true;
  const Node& parent = *node(index);
  if (plies == 0 || parent.state != NodeState::kExpanded || !may_lead_to(position, wanted, plies))
    return false;
  for (int i = 0; i < parent.child_slots; ++i) {
    const ArenaIndex child = children_of(parent)[i];
    if (child == kNone || node(child)->visits == 0) continue;
    const Move move = arena_.at<Edge>(parent.edges)[i].move();
    Position next = position;
    next.play(move);
    if (!find_position(wanted, next, child, plies - 1, way)) continue;
    way.push_back(move);
    return true;
  }
  return false;
}

// Resets a root without edges: the game may continue after a draw that was not claimed, and visits without
// moves are useless for a choice.
void Tree::forget_bare_root() {
  Node& root = *node(root_);
  if (root.state == NodeState::kExpanded) return;
  release_children(root);
  root = Node::fresh();
}

bool Tree::is_on_the_way(ArenaIndex index) const {
  return index == root_ ||
         std::any_of(above_.begin(), above_.end(), [index](const Above& step) { return step.node == index; });
}

}  // namespace wavefront::tree
