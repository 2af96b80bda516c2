// SPDX-License-Identifier: GPL-3.0-or-later
#include "mate/mate_in_one.h"

#include "chess/attacks.h"

namespace wavefront::mate {

using namespace chess;

namespace {

// Selects the moves that may give check, without playing them.
class CheckFilter {
 public:
  explicit CheckFilter(const Position& position)
      : position_(position), us_(position.side_to_move()), king_(position.king_square(~us_)) {
    const Bitboard occupied = position.occupied();
    const Bitboard bishop = bishop_attacks(king_, occupied);
    const Bitboard rook = rook_attacks(king_, occupied);
    squares_[kPawn] = pawn_attacks(~us_, king_);
    squares_[kKnight] = knight_attacks(king_);
    squares_[kBishop] = bishop;
    squares_[kRook] = rook;
    squares_[kQueen] = bishop | rook;
    find_uncoverers(occupied);
  }

  bool may_check(Move move) const {
    const Bitboard from = bit(move.from());
    const Bitboard to = bit(move.to());
    if (from & uncoverers_) return true;
    if (to & position_.pieces(us_)) return true;  // castling
    const PieceType type = position_.piece_on(move.from());
    if (move.promotion() != kNoPiece) return promotion_checks(move);
    if (squares_[type] & to) return true;
    return type == kPawn && move.to() == position_.en_passant();  // takes two men off their lines
  }

 private:
  // Finds our men that alone stand between the king and one of our bishops, rooks or queens.
  void find_uncoverers(Bitboard occupied) {
    const Bitboard queens = position_.pieces(kQueen);
    Bitboard snipers =
        position_.pieces(us_) & ((g_attacks.bishop_rays[king_] & (position_.pieces(kBishop) | queens)) |
                                 (g_attacks.rook_rays[king_] & (position_.pieces(kRook) | queens)));
    while (snipers) {
      const Bitboard blockers = between(king_, pop_first(snipers)) & occupied;
      if (at_most_one(blockers)) uncoverers_ |= blockers & position_.pieces(us_);
    }
  }

  // The pawn leaves a square that may lie between king and promoted piece.
  bool promotion_checks(Move move) const {
    const Bitboard occupied = position_.occupied() ^ bit(move.from());
    Bitboard attacked = 0;
    switch (move.promotion()) {
      case kKnight:
        attacked = knight_attacks(king_);
        break;
      case kBishop:
        attacked = bishop_attacks(king_, occupied);
        break;
      case kRook:
        attacked = rook_attacks(king_, occupied);
        break;
      default:
        attacked = bishop_attacks(king_, occupied) | rook_attacks(king_, occupied);
        break;
    }
    return attacked & bit(move.to());
  }

  const Position& position_;
  const Color us_;
  const Square king_;
  Bitboard squares_[kNoPiece + 1] = {};  // from which a man of each type gives check
  Bitboard uncoverers_ = 0;
};

}  // namespace

bool is_mate(const Position& position) {
  return position.in_check() && position.legal_move_count() == 0;
}

Move mate_in_one(const Position& position, const MoveList& moves, uint64_t& positions) {
  const CheckFilter filter(position);
  for (const Move move : moves) {
    if (!filter.may_check(move)) continue;
    Position after = position;
    after.play_without_key(move);
    ++positions;
    if (is_mate(after)) return move;
  }
  return {};
}

}  // namespace wavefront::mate
