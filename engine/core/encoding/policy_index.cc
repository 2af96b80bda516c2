// SPDX-License-Identifier: GPL-3.0-or-later
// The policy table, computed at compile time from the geometry of queen and knight moves.
#include "encoding/policy_index.h"

#include <array>

#include "chess/square_names.h"
#include "encoding/transform.h"

namespace wavefront::encoding {

namespace {

constexpr std::array<PieceType, 3> kPromotionOrder = {kQueen, kRook, kBishop};

constexpr bool is_queen_or_knight_move(Square from, Square to) {
  const int files = file_of(from) > file_of(to) ? file_of(from) - file_of(to) : file_of(to) - file_of(from);
  const int ranks = rank_of(from) > rank_of(to) ? rank_of(from) - rank_of(to) : rank_of(to) - rank_of(from);
  if (from == to) return false;
  return files == 0 || ranks == 0 || files == ranks || files + ranks == 3;
}

struct PolicyTable {
  std::array<std::array<uint16_t, 64>, 64> plain{};          // by from and to
  std::array<std::array<uint16_t, 8>, 8> first_promotion{};  // by files; the queen's, then rook, bishop
  std::array<Move, kPolicySize> moves{};
  int size = 0;

  constexpr PolicyTable() {
    for (Square from = 0; from < 64; ++from) {
      for (Square to = 0; to < 64; ++to) {
        if (!is_queen_or_knight_move(from, to)) continue;
        plain[size_t(from)][size_t(to)] = uint16_t(size);
        moves[size_t(size++)] = Move(from, to);
      }
    }
    for (int from = 0; from < 8; ++from) {
      for (int to = from > 0 ? from - 1 : 0; to <= from + 1 && to < 8; ++to) {
        first_promotion[size_t(from)][size_t(to)] = uint16_t(size);
        for (const PieceType piece : kPromotionOrder) {
          moves[size_t(size++)] = Move(make_square(from, 6), make_square(to, 7), piece);
        }
      }
    }
  }
};

constexpr PolicyTable kTable;
static_assert(kTable.size == kPolicySize);

// lc0's transform of a move's squares. If the board is transposed, lc0 rotates the move by 180 degrees
// instead (observed in lc0 0.33's priors). Networks are trained and used that way.
constexpr int move_transform(int transform) {
  return transform & kTranspose ? kFlip | kMirror : transform;
}

}  // namespace

uint16_t policy_index(Move move, Color side_to_move, int transform) {
  transform = move_transform(transform);
  const Square from = transform_square(move.from(), side_to_move, transform);
  const Square to = transform_square(move.to(), side_to_move, transform);
  const PieceType promotion = move.promotion();
  if (promotion == kNoPiece || promotion == kKnight) return kTable.plain[size_t(from)][size_t(to)];
  return uint16_t(kTable.first_promotion[size_t(file_of(from))][size_t(file_of(to))] + (kQueen - promotion));
}

Move policy_move(const Position& position, int index, int transform) {
  const Color us = position.side_to_move();
  transform = move_transform(transform);
  const Move seen = kTable.moves[size_t(index)];
  const Square from = untransform_square(seen.from(), us, transform);
  const Square to = untransform_square(seen.to(), us, transform);
  PieceType promotion = seen.promotion();
  if (promotion == kNoPiece && relative_rank(us, to) == 7 && position.pieces(us, kPawn) & bit(from)) {
    promotion = kKnight;
  }
  return Move(from, to, promotion);
}

std::string policy_move_name(int index) {
  const Move move = kTable.moves[size_t(index)];
  std::string name = square_name(move.from()) + square_name(move.to());
  if (move.promotion() != kNoPiece) name += " nbrq"[move.promotion()];
  return name;
}

}  // namespace wavefront::encoding
