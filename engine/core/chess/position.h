// SPDX-License-Identifier: GPL-3.0-or-later
// One chess position: pieces, side to move, castling, en passant and counters, with legal moves and play.
#pragma once

#include <cstdint>
#include <type_traits>

#include "chess/bitboard.h"
#include "chess/move.h"
#include "chess/square.h"

namespace wavefront::chess {

// A small value type (96 bytes). To take a move back, restore a copy. history.h handles repetitions.
//
// Memory: 6 piece-type masks, 2 colour masks, the mask of rooks that may castle, the key, then the small
// fields. A castling right is represented by its rook, which covers Chess960 without further state.
class Position {
 public:
  // The unchecked contents of a FEN; fen.h creates Positions from these.
  struct Setup {
    Bitboard by_type[6] = {};
    Bitboard by_color[2] = {};
    Bitboard castling_rooks = 0;
    Square en_passant = kNoSquare;
    Color side_to_move = kWhite;
    int rule50 = 0;
    int ply = 0;
  };

  // setup: must be a legal position, which fen.cc checks.
  explicit Position(const Setup& setup);

  // The initial position of standard chess.
  static Position start();

  Color side_to_move() const { return side_to_move_; }
  Bitboard occupied() const { return by_color_[kWhite] | by_color_[kBlack]; }
  Bitboard pieces(Color color) const { return by_color_[color]; }
  Bitboard pieces(PieceType type) const { return by_type_[type]; }
  Bitboard pieces(Color color, PieceType type) const { return by_color_[color] & by_type_[type]; }
  Square king_square(Color color) const { return first_square(pieces(color, kKing)); }
  PieceType piece_on(Square square) const { return occupied() & bit(square) ? type_at(square) : kNoPiece; }
  int men() const { return count(occupied()); }  // pieces and pawns of both sides

  // Plies since the last capture or pawn move.
  int rule50() const { return rule50_; }
  // Plies since the start of the game, from the FEN's move number.
  int ply() const { return int(ply_); }
  int fullmove() const { return 1 + ply() / 2; }

  // The square that a pawn has just passed by a double step, or kNoSquare. As in lc0 it is set if an enemy
  // pawn (pinned or not) attacks it, or the FEN names it.
  Square en_passant() const { return en_passant_; }
  // Returns true if there is a legal en-passant capture, which decides repetitions and FEN output.
  bool has_legal_en_passant() const;

  // The rooks that may still castle, of both sides.
  Bitboard castling_rooks() const { return castling_rooks_; }
  bool has_castling_rights() const { return castling_rooks_ != 0; }
  // Returns the rook that may castle on the king's h-side or a-side, or kNoSquare.
  Square castling_rook(Color color, bool kingside) const;

  // Returns the pieces of `by` that attack `square`, given the occupied squares.
  Bitboard attackers(Square square, Color by, Bitboard occupied) const;
  Bitboard checkers() const { return attackers(king_square(side_to_move_), ~side_to_move_, occupied()); }
  bool in_check() const { return checkers() != 0; }
  // True if the side to move could take the king: no move can be played in such a position.
  bool opponent_in_check() const {
    return attackers(king_square(~side_to_move_), side_to_move_, occupied()) != 0;
  }

  // Appends all legal moves, in an order that depends only on the position.
  void legal_moves(MoveList& moves) const;
  int legal_move_count() const;

  // Plays a legal move; other moves have undefined results.
  void play(Move move);
  // Plays a legal move without updating the key, which perft does not need.
  void play_without_key(Move move);

  // Equal exactly for positions that are equal by the rules of repetition, except hash collisions: pieces,
  // side to move, castling rights, and en passant only if it is legal.
  uint64_t key() const { return key_; }
  // Returns true if the positions are equal by these rules, without hashing.
  bool same_by_rules(const Position& other) const;

  // True if neither side can mate: bare kings, one minor piece, or only bishops of one square colour.
  bool insufficient_material() const;

 private:
  template <bool kUpdateKey>
  void play_impl(Move move);
  template <Color Us, class Sink>
  friend class MoveGenerator;
  template <class Sink>
  void generate(Sink& sink) const;

  // The piece type on an occupied square.
  PieceType type_at(Square square) const {
    const auto has = [&](PieceType type) { return int(by_type_[type] >> square & 1); };
    return PieceType(has(kKnight) * kKnight + has(kBishop) * kBishop + has(kRook) * kRook +
                     has(kQueen) * kQueen + has(kKing) * kKing);
  }
  uint64_t compute_key() const;

  Bitboard by_type_[6];
  Bitboard by_color_[2];
  Bitboard castling_rooks_;
  uint64_t key_;
  uint32_t ply_;
  uint16_t rule50_;
  Color side_to_move_;
  uint8_t en_passant_;
};
static_assert(std::is_trivially_copyable_v<Position> && sizeof(Position) <= 96);

}  // namespace wavefront::chess
