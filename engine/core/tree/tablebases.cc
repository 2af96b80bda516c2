// SPDX-License-Identifier: GPL-3.0-or-later
// Tablebases in the search: at leaves, and for the root's moves.
//
// Without tables, positions with one or two pieces against a bare king are solved (bare_king.h), and
// ranked as if tables knew them.
//
// A leaf right after a capture or pawn move has the tables' exact value, because the 50-move clock is 0
// there. Elsewhere the value depends on the clock. If the tables know the root, only moves that keep its
// value are searched. With DTZ tables these also make progress, so leaves are not probed any more: all lines
// would be won, and the network finds a mate better than a choice among equal values.

#include <algorithm>
#include <utility>

#include "chess/uci_move.h"
#include "syzygy/probe.h"
#include "tree/bare_king.h"
#include "tree/tree.h"

namespace wavefront::tree {

namespace {

// Rank of the quickest mate of a bare king; larger than any distance.
constexpr int kBestRank = 1000;

bool all_or_one_of(const std::vector<Move>& moves, Move move) {
  return moves.empty() || std::find(moves.begin(), moves.end(), move) != moves.end();
}

}  // namespace

// Probes the tables for the root's moves, once per root.
void Tree::rank_root_moves() {
  root_ranking_.reset();
  if (params_.tablebases) {
    MoveList legal;
    history_.current().legal_moves(legal);
    root_ranking_ = syzygy::rank_root(*params_.tablebases, history_, {legal.begin(), legal.end()},
                                      {params_.syzygy_50_move_rule, params_.syzygy_fast_play});
    if (root_ranking_) tablebase_hits_ += root_ranking_->moves.size();
  }
  if (!root_ranking_) root_ranking_ = ranking_against_bare_king();
  limit_root_moves();
}

// Ranks the root's moves by their distance to mate; nothing if no move mates a bare king. Unless a queen
// would stalemate, other promotions count as no mate: each would cost the analysis of other pieces, on the
// clock.
std::optional<syzygy::RootRanking> Tree::ranking_against_bare_king() const {
  if (!params_.solves_endings || history_.current().men() > 4) return std::nullopt;
  History line = history_;
  // Returns the plies to the mate by a move; 0 if there is none in time.
  const auto distance_by = [&line](Move move) {
    line.push(move);
    const auto plies = plies_to_mate_of_bare_king(line.current());
    const bool in_time = plies && line.current().rule50() + *plies <= 100 && line.repetitions() < 2;
    line.pop();
    return in_time ? *plies + 1 : 0;
  };
  const auto queen_leaves_no_move = [&line](Move move) {
    line.push({move.from(), move.to(), kQueen});
    MoveList replies;
    line.current().legal_moves(replies);
    line.pop();
    return replies.size() == 0;
  };
  MoveList legal;
  history_.current().legal_moves(legal);
  syzygy::RootRanking ranking{{}, true};
  bool mates = false;
  for (const Move move : legal) {
    const bool underpromotes = move.promotion() != kNoPiece && move.promotion() != kQueen;
    const int distance = underpromotes && !queen_leaves_no_move(move) ? 0 : distance_by(move);
    ranking.moves.push_back({move, distance > 0 ? kBestRank - distance : 0, distance > 0 ? 1 : 0, distance});
    mates |= distance > 0;
  }
  return mates ? std::optional(std::move(ranking)) : std::nullopt;
}

void Tree::limit_root_moves() {
  searched_moves_ = root_moves_;
  if (!root_ranking_) return;
  searched_moves_.clear();
  int best = 0;
  for (const syzygy::RankedMove& ranked : root_ranking_->moves) {
    if (!all_or_one_of(root_moves_, ranked.move) || (!searched_moves_.empty() && ranked.rank < best))
      continue;
    if (ranked.rank > best) searched_moves_.clear();
    best = ranked.rank;
    searched_moves_.push_back(ranked.move);
  }
}

std::vector<std::string> Tree::root_moves() const {
  std::lock_guard lock(mutex_);
  MoveList legal;
  const Position& position = history_.current();
  position.legal_moves(legal);
  std::vector<std::string> names;
  for (const Move move : legal) {
    if (all_or_one_of(searched_moves_, move)) names.push_back(move_to_uci(position, move, game_->chess960));
  }
  return names;
}

// Returns the current position's value for the side to move, if the tables have it exactly.
std::optional<int> Tree::value_of_leaf_by_tables() {
  const Position& position = history_.current();
  if (!params_.tablebases || position.rule50() != 0 || path_.size() == 1) return std::nullopt;
  if (root_ranking_ && root_ranking_->by_distance) return std::nullopt;
  const std::optional<syzygy::Wdl> wdl = syzygy::probe_wdl(*params_.tablebases, position);
  if (!wdl) return std::nullopt;
  ++tablebase_hits_;
  return syzygy::game_value(*wdl, params_.syzygy_50_move_rule);
}

// Returns a root move's value by the tables, unless a mate was found.
std::optional<TableValue> Tree::value_by_tables(Move move, const Line& line) const {
  if (line.proof && line.proof->by_tables) {
    return TableValue{line.proof->value, static_cast<int>(line.moves.size())};
  }
  if (!root_ranking_ || (line.proof && line.proof->value != 0)) return std::nullopt;
  for (const syzygy::RankedMove& ranked : root_ranking_->moves) {
    if (ranked.move == move) return TableValue{ranked.value, ranked.plies};
  }
  return std::nullopt;
}

// Adds lines of the moves that the tables exclude from the search, best first: the move and its tablebase
// value. Up to `count` lines in all.
void Tree::add_lines_left_out(std::vector<Line>& lines, int count) const {
  if (!root_ranking_) return;
  std::vector<syzygy::RankedMove> left_out;
  for (const syzygy::RankedMove& ranked : root_ranking_->moves) {
    if (all_or_one_of(root_moves_, ranked.move) && !all_or_one_of(searched_moves_, ranked.move)) {
      left_out.push_back(ranked);
    }
  }
  // Among equal moves, shorter wins and longer losses come first.
  const auto worth = [](const syzygy::RankedMove& each) {
    return std::pair(each.rank, -each.value * each.plies);
  };
  std::stable_sort(left_out.begin(), left_out.end(),
                   [&](const auto& a, const auto& b) { return worth(a) > worth(b); });
  const Node& root = *node(root_);
  const Edge* edges = arena_.at<Edge>(root.edges);
  for (const syzygy::RankedMove& ranked : left_out) {
    if (static_cast<int>(lines.size()) >= count) return;
    Line line;
    line.moves.push_back(move_to_uci(history_.current(), ranked.move, game_->chess960));
    line.move_visits.push_back(0);
    line.evaluation = {static_cast<double>(ranked.value), ranked.value == 0 ? 1.0 : 0.0, root.m};
    line.by_tables = TableValue{ranked.value, ranked.plies};
    for (int i = 0; i < root.edge_count; ++i) {
      if (edges[i].move() == ranked.move) line.prior = root_prior(i);
    }
    lines.push_back(std::move(line));
  }
}

}  // namespace wavefront::tree
