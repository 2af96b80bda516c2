// SPDX-License-Identifier: GPL-3.0-or-later
// The choice of a position's transform.
#include "encoding/transform.h"

namespace wavefront::encoding {

int choose_transform(const Position& position) {
  if (position.has_castling_rights()) return 0;
  const Color us = position.side_to_move();
  int transform = 0;
  Square king = transform_square(position.king_square(us), us, 0);
  if (file_of(king) < 4) {
    transform |= kFlip;
    king ^= 7;
  }
  if (position.pieces(kPawn)) return transform;
  if (rank_of(king) >= 4) {
    transform |= kMirror;
    king ^= 56;
  }
  const int above_diagonal = rank_of(king) + file_of(king) - 7;
  if (above_diagonal > 0) return transform | kTranspose;
  if (above_diagonal < 0) return transform;

  // On the diagonal, the first of these sets that transposition changes decides.
  const Bitboard sets[] = {position.occupied(),     position.pieces(us),    position.pieces(kKing),
                           position.pieces(kQueen), position.pieces(kRook), position.pieces(kKnight),
                           position.pieces(kBishop)};
  for (const Bitboard set : sets) {
    const Bitboard seen = transform_set(us == kBlack ? mirror_ranks(set) : set, transform);
    const Bitboard transposed = transpose(seen);
    if (seen != transposed) return transposed < seen ? transform | kTranspose : transform;
  }
  return transform;
}

}  // namespace wavefront::encoding
