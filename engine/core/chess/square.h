// SPDX-License-Identifier: GPL-3.0-or-later
// Squares, colours and piece types.
//
// Squares are plain ints numbered a1 = 0, b1 = 1, ... h1 = 7, a2 = 8, ... h8 = 63, from White's side.
#pragma once

#include <cstddef>
#include <cstdint>

namespace wavefront::chess {

using std::size_t;

using Square = int;

inline constexpr Square kNoSquare = 64;

enum Color : uint8_t { kWhite, kBlack };
enum PieceType : uint8_t { kPawn, kKnight, kBishop, kRook, kQueen, kKing, kNoPiece };

constexpr Color operator~(Color color) {
  return Color(color ^ 1);
}

constexpr int file_of(Square square) {
  return square & 7;
}
constexpr int rank_of(Square square) {
  return square >> 3;
}
constexpr Square make_square(int file, int rank) {
  return rank * 8 + file;
}

// The rank from the view of `color`: 0 is its own first rank.
constexpr int relative_rank(Color color, Square square) {
  return rank_of(square) ^ (color * 7);
}

// Squares of king and rook after castling, by colour and side (h-side is "kingside"), also in Chess960.
constexpr Square castled_king(Color color, bool kingside) {
  return make_square(kingside ? 6 : 2, color * 7);
}
constexpr Square castled_rook(Color color, bool kingside) {
  return make_square(kingside ? 5 : 3, color * 7);
}

}  // namespace wavefront::chess
