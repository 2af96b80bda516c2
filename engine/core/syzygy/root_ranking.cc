// SPDX-License-Identifier: GPL-3.0-or-later
#include "syzygy/root_ranking.h"

#include <algorithm>
#include <cstdlib>

#include "syzygy/probe.h"

namespace wavefront::syzygy {
namespace {

constexpr int kPliesToDraw = 100;
constexpr int kSurest = 1 << 20;  // rank of a safe win; larger than any distance

// The position after a move.
struct Outlook {
  bool drawn_by_rule;  // threefold repetition, 50 moves or insufficient material
  bool repeats;        // it occurred before
  std::optional<Wdl> wdl;
  std::optional<int> dtz;  // for the side that moved, the move included
};

// with_dtz: false if only the value is needed.
Outlook look(const Tablebases& tables, History& history, Move move, bool with_dtz) {
  const bool zeroing = resets_clock(history.current(), move);
  history.push(move);
  const Position& after = history.current();
  const bool mated = after.in_check() && after.legal_move_count() == 0;
  Outlook outlook{false, history.repetitions() > 0, {}, {}};
  if (mated) {
    outlook.wdl = Wdl::kWin;
    outlook.dtz = 1;
  } else {
    outlook.drawn_by_rule =
        history.repetitions() >= 2 || after.rule50() >= kPliesToDraw || after.insufficient_material();
    if (!with_dtz || zeroing) {
      if (const auto reply = probe_wdl(tables, after)) outlook.wdl = -*reply;
      if (outlook.wdl) outlook.dtz = dtz_of_zeroing_move(*outlook.wdl);
    } else if (const auto reply = probe_dtz(tables, after)) {
      outlook.dtz = *reply > 0 ? -*reply - 1 : *reply < 0 ? -*reply + 1 : 0;
    }
  }
  history.pop();
  return outlook;
}

// True if a position has occurred twice since the clock was reset.
bool has_repeated(const History& history) {
  const int plies = std::min(history.current().rule50(), history.length() - 1);
  for (int back = 0; back <= plies; ++back) {
    if (history.repetitions(back) > 0) return true;
  }
  return false;
}

// True if a distance of the tables is that to mate: one king is bare, and the other side can spare no man.
// With more material the shortest way to a capture may give a queen away, so it is no progress.
bool ends_in_mate(const Position& position) {
  if (position.pieces(kPawn)) return false;
  const Bitboard kings = position.pieces(kKing);
  const Bitboard men = position.occupied() & ~kings;
  if ((men & position.pieces(kWhite)) && (men & position.pieces(kBlack))) return false;
  const bool only_minors = !(position.pieces(kQueen) | position.pieces(kRook));
  return count(men) == (only_minors ? 2 : 1);
}

RankedMove by_distance(Move move, int dtz, bool repeats, bool shortest, int clock, bool fifty_moves) {
  const int plies = std::abs(dtz);
  if (dtz == 0) return {move, 0, 0, 0};
  if (dtz > 0) {
    const bool wins = !fifty_moves || clock + plies <= kPliesToDraw;
    // Distances may be one too small, so a safe win needs a spare ply.
    const bool safe = (!fifty_moves || clock + plies < kPliesToDraw) && !repeats && !shortest;
    return {move, safe ? kSurest : kSurest - 1 - clock - plies, wins ? 1 : 0, plies};
  }
  const bool loses = !fifty_moves || clock + plies <= kPliesToDraw;
  // If even twice the distance is in time, delay cannot save the loser, and all moves are equal.
  const bool hopeless = !fifty_moves || clock + 2 * plies < kPliesToDraw;
  return {move, hopeless ? -kSurest : -kSurest + clock + plies, loses ? -1 : 0, plies};
}

RankedMove by_value(Move move, Wdl wdl, bool fifty_moves) {
  const int value = game_value(wdl, fifty_moves);
  return {move, fifty_moves ? static_cast<int>(wdl) : value, value, 0};
}

}  // namespace

std::optional<RootRanking> rank_root(const Tablebases& tables, const History& history,
                                     std::span<const Move> moves, const RankingRules& rules) {
  if (moves.empty() || !may_be_known(tables, history.current())) return std::nullopt;
  History line = history;
  const int clock = history.current().rule50();
  const bool shortest = rules.shortest_wins || has_repeated(history) || ends_in_mate(history.current());
  for (const bool with_dtz : {true, false}) {
    RootRanking ranking{{}, with_dtz};
    for (const Move move : moves) {
      const Outlook outlook = look(tables, line, move, with_dtz);
      if (outlook.drawn_by_rule) {
        ranking.moves.push_back({move, 0, 0, 0});
      } else if (with_dtz && outlook.dtz) {
        // The clock matters until the next capture or pawn move.
        ranking.moves.push_back(
            by_distance(move, *outlook.dtz, outlook.repeats, shortest, clock, rules.fifty_moves));
      } else if (!with_dtz && outlook.wdl) {
        ranking.moves.push_back(by_value(move, *outlook.wdl, rules.fifty_moves));
      } else {
        break;
      }
    }
    if (ranking.moves.size() == moves.size()) return ranking;
  }
  return std::nullopt;
}

}  // namespace wavefront::syzygy
