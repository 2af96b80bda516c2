// SPDX-License-Identifier: GPL-3.0-or-later
#include "syzygy/probe.h"

#include <algorithm>

namespace wavefront::syzygy {
namespace {

bool is_capture(const Position& position, Move move) {
  if (position.pieces(~position.side_to_move()) & bit(move.to())) return true;
  return position.piece_on(move.from()) == kPawn && move.to() == position.en_passant();
}

struct Probed {
  Wdl wdl;
  bool by_zeroing_move;  // a searched move is best, so no table was needed
};

// Returns the value by a search of captures, and of all pawn moves if `pawn_moves`. The search is short,
// because each capture removes a man.
std::optional<Probed> probe(const Tablebases& tables, const Position& position, bool pawn_moves) {
  if (position.men() == 2) return Probed{Wdl::kDraw, false};
  if (!tables.may_have(position)) return std::nullopt;  // before the search of captures
  MoveList moves;
  position.legal_moves(moves);
  std::optional<Wdl> best;
  bool all_looked_at = true;
  for (const Move move : moves) {
    if (!is_capture(position, move) && !(pawn_moves && position.piece_on(move.from()) == kPawn)) {
      all_looked_at = false;
      continue;
    }
    Position after = position;
    after.play_without_key(move);
    const std::optional<Wdl> reply = probe_wdl(tables, after);
    if (!reply) return std::nullopt;
    if (!best || -*reply > *best) best = -*reply;
    if (*best == Wdl::kWin) return Probed{*best, true};
  }
  // If all moves are en-passant captures, the stored value ignores them.
  if (best && all_looked_at) return Probed{*best, true};
  const std::optional<Wdl> stored = tables.stored_wdl(position);
  if (!stored) return std::nullopt;
  if (best && *best >= *stored) return Probed{*best, *best > Wdl::kDraw};
  return Probed{*stored, false};
}

int sign(int number) {
  return (number > 0) - (number < 0);
}

std::optional<int> distance(const Tablebases& tables, const Position& position, bool may_look_ahead);

// A DTZ file has only one side to move. The other side's distances follow from those after its moves.
std::optional<int> distance_by_moves(const Tablebases& tables, const Position& position, Wdl wdl) {
  MoveList moves;
  position.legal_moves(moves);
  std::optional<int> best;
  for (const Move move : moves) {
    Position after = position;
    after.play_without_key(move);
    int plies = 0;
    if (resets_clock(position, move)) {
      const std::optional<Wdl> reply = probe_wdl(tables, after);
      if (!reply) return std::nullopt;
      plies = dtz_of_zeroing_move(-*reply);
    } else {
      const std::optional<int> reply = distance(tables, after, false);
      if (!reply) return std::nullopt;
      const bool mates = *reply == -1 && after.in_check() && after.legal_move_count() == 0;
      plies = mates ? 1 : -*reply - sign(*reply);
    }
    // Of the moves that keep the value, the winner selects the shortest, the loser the longest.
    if (sign(plies) == sign(static_cast<int>(wdl)) && (!best || plies < *best)) best = plies;
  }
  return best.value_or(-1);
}

// may_look_ahead: false after one move, when a side to move that is not in the file means a damaged file.
std::optional<int> distance(const Tablebases& tables, const Position& position, bool may_look_ahead) {
  const std::optional<Probed> probed = probe(tables, position, true);
  if (!probed) return std::nullopt;
  if (probed->wdl == Wdl::kDraw) return 0;
  if (probed->by_zeroing_move) return dtz_of_zeroing_move(probed->wdl);
  const auto stored = tables.stored_distance(position, probed->wdl);
  if (!stored) return std::nullopt;
  if (!stored->known) {
    return may_look_ahead ? distance_by_moves(tables, position, probed->wdl) : std::nullopt;
  }
  const bool too_long = probed->wdl == Wdl::kCursedWin || probed->wdl == Wdl::kBlessedLoss;
  return sign(static_cast<int>(probed->wdl)) * (stored->plies + (too_long ? 100 : 0));
}

}  // namespace

std::optional<Wdl> probe_wdl(const Tablebases& tables, const Position& position) {
  if (!may_be_known(tables, position)) return std::nullopt;
  const std::optional<Probed> probed = probe(tables, position, false);
  if (!probed) return std::nullopt;
  return probed->wdl;
}

std::optional<int> probe_dtz(const Tablebases& tables, const Position& position) {
  if (!may_be_known(tables, position)) return std::nullopt;
  return distance(tables, position, true);
}

int dtz_of_zeroing_move(Wdl wdl) {
  switch (wdl) {
    case Wdl::kWin:
      return 1;
    case Wdl::kCursedWin:
      return 101;
    case Wdl::kBlessedLoss:
      return -101;
    case Wdl::kLoss:
      return -1;
    default:
      return 0;
  }
}

}  // namespace wavefront::syzygy
