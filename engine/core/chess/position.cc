// SPDX-License-Identifier: GPL-3.0-or-later
// Playing moves, the position key, attacks on squares and insufficient material.
#include "chess/position.h"

#include <initializer_list>

#include "chess/attacks.h"
#include "chess/zobrist.h"

namespace wavefront::chess {

Position::Position(const Setup& setup)
    : castling_rooks_(setup.castling_rooks),
      ply_(uint32_t(setup.ply)),
      rule50_(uint16_t(setup.rule50)),
      side_to_move_(setup.side_to_move),
      en_passant_(uint8_t(setup.en_passant)) {
  for (int type = kPawn; type <= kKing; ++type) by_type_[type] = setup.by_type[type];
  for (int color = kWhite; color <= kBlack; ++color) by_color_[color] = setup.by_color[color];
  key_ = compute_key();
}

Position Position::start() {
  Setup setup;
  setup.by_type[kPawn] = 0x00FF00000000FF00;
  setup.by_type[kKnight] = 0x4200000000000042;
  setup.by_type[kBishop] = 0x2400000000000024;
  setup.by_type[kRook] = 0x8100000000000081;
  setup.by_type[kQueen] = 0x0800000000000008;
  setup.by_type[kKing] = 0x1000000000000010;
  setup.by_color[kWhite] = 0x000000000000FFFF;
  setup.by_color[kBlack] = 0xFFFF000000000000;
  setup.castling_rooks = setup.by_type[kRook];
  return Position(setup);
}

Square Position::castling_rook(Color color, bool kingside) const {
  const Bitboard rooks = castling_rooks_ & by_color_[color];
  const Bitboard below_king = pieces(color, kKing) - 1;
  const Bitboard rook = kingside ? rooks & ~below_king : rooks & below_king;
  return rook ? first_square(rook) : kNoSquare;
}

Bitboard Position::attackers(Square square, Color by, Bitboard occupied) const {
  const Bitboard queens = by_type_[kQueen];
  return by_color_[by] &
         ((pawn_attacks(~by, square) & by_type_[kPawn]) | (knight_attacks(square) & by_type_[kKnight]) |
          (king_attacks(square) & by_type_[kKing]) |
          (bishop_attacks(square, occupied) & (by_type_[kBishop] | queens)) |
          (rook_attacks(square, occupied) & (by_type_[kRook] | queens)));
}

bool Position::has_legal_en_passant() const {
  if (en_passant_ == kNoSquare) return false;
  const Color us = side_to_move_;
  const Bitboard captured = bit(en_passant_ ^ 8);
  Bitboard capturers = pawn_attacks(~us, en_passant_) & pieces(us, kPawn);
  while (capturers) {
    const Bitboard after = (occupied() ^ bit(pop_first(capturers)) ^ captured) | bit(en_passant_);
    if (!(attackers(king_square(us), ~us, after) & ~captured)) return true;
  }
  return false;
}

bool Position::same_by_rules(const Position& other) const {
  for (int type = kPawn; type <= kKing; ++type) {
    if (by_type_[type] != other.by_type_[type]) return false;
  }
  if (by_color_[kWhite] != other.by_color_[kWhite] || side_to_move_ != other.side_to_move_ ||
      castling_rooks_ != other.castling_rooks_) {
    return false;
  }
  const Square ours = has_legal_en_passant() ? en_passant() : kNoSquare;
  const Square theirs = other.has_legal_en_passant() ? other.en_passant() : kNoSquare;
  return ours == theirs;
}

bool Position::insufficient_material() const {
  if (by_type_[kPawn] | by_type_[kRook] | by_type_[kQueen]) return false;
  if (men() <= 3) return true;
  if (by_type_[kKnight]) return false;
  const Bitboard bishops = by_type_[kBishop];
  return !(bishops & kDarkSquares) || !(bishops & ~kDarkSquares);
}

uint64_t Position::compute_key() const {
  uint64_t key = side_to_move_ == kBlack ? kZobrist.black_to_move : 0;
  for (const Color color : {kWhite, kBlack}) {
    for (int type = kPawn; type <= kKing; ++type) {
      for (Bitboard set = pieces(color, PieceType(type)); set;)
        key ^= kZobrist.piece[color][type][pop_first(set)];
    }
  }
  for (Bitboard rooks = castling_rooks_; rooks;) key ^= kZobrist.castling_rook[pop_first(rooks)];
  if (has_legal_en_passant()) key ^= kZobrist.en_passant_file[file_of(en_passant_)];
  return key;
}

template <bool kUpdateKey>
void Position::play_impl(Move move) {
  const Color us = side_to_move_;
  const Color them = ~us;
  const Square from = move.from();
  const Square to = move.to();
  const auto toggle = [this](Color color, PieceType type, Square square) {
    by_type_[type] ^= bit(square);
    by_color_[color] ^= bit(square);
    if constexpr (kUpdateKey) key_ ^= kZobrist.piece[color][type][square];
  };
  const auto toggle_en_passant_key = [&] {
    if constexpr (kUpdateKey) {
      if (en_passant_ != kNoSquare && has_legal_en_passant())
        key_ ^= kZobrist.en_passant_file[file_of(en_passant_)];
    }
  };

  toggle_en_passant_key();
  const Square en_passant = en_passant_;
  en_passant_ = uint8_t(kNoSquare);
  ++rule50_;
  ++ply_;

  const PieceType type = type_at(from);
  Bitboard lost_rights = castling_rooks_ & (bit(from) | bit(to));
  if (type == kKing) lost_rights |= castling_rooks_ & by_color_[us];
  if (lost_rights) {
    castling_rooks_ ^= lost_rights;
    if constexpr (kUpdateKey) {
      while (lost_rights) key_ ^= kZobrist.castling_rook[pop_first(lost_rights)];
    }
  }

  if (by_color_[us] & bit(to)) {
    const bool kingside = to > from;
    toggle(us, kKing, from);
    toggle(us, kRook, to);
    toggle(us, kKing, castled_king(us, kingside));
    toggle(us, kRook, castled_rook(us, kingside));
  } else {
    if (by_color_[them] & bit(to)) {
      toggle(them, type_at(to), to);
      rule50_ = 0;
    }
    toggle(us, type, from);
    toggle(us, move.promotion() == kNoPiece ? type : move.promotion(), to);
    if (type == kPawn) {
      rule50_ = 0;
      if (to == en_passant) {
        toggle(them, kPawn, to ^ 8);
      } else if ((from ^ to) == 16) {
        const Square skipped = (from + to) / 2;
        if (pawn_attacks(us, skipped) & pieces(them, kPawn)) en_passant_ = uint8_t(skipped);
      }
    }
  }

  side_to_move_ = them;
  if constexpr (kUpdateKey) key_ ^= kZobrist.black_to_move;
  toggle_en_passant_key();
}

void Position::play(Move move) {
  play_impl<true>(move);
}
void Position::play_without_key(Move move) {
  play_impl<false>(move);
}

}  // namespace wavefront::chess
