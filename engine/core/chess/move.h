// SPDX-License-Identifier: GPL-3.0-or-later
// A move in 16 bits, and a fixed-size list of moves.
#pragma once

#include <cstdint>

#include "chess/square.h"

namespace wavefront::chess {

// Bits 0-5 from, 6-11 to, 12-14 promotion (0 none, 1 knight, 2 bishop, 3 rook, 4 queen).
// Castling is king takes rook (e1h1), also in standard chess.
// The default value, a1a1, means no move.
class Move {
 public:
  constexpr Move() = default;
  constexpr Move(Square from, Square to, PieceType promotion = kNoPiece)
      : bits_(uint16_t(from | to << 6 | (promotion == kNoPiece ? 0 : promotion << 12))) {}

  constexpr Square from() const { return bits_ & 63; }
  constexpr Square to() const { return bits_ >> 6 & 63; }
  constexpr PieceType promotion() const { return bits_ < 1 << 12 ? kNoPiece : PieceType(bits_ >> 12); }

  constexpr uint16_t raw() const { return bits_; }
  static constexpr Move from_raw(uint16_t bits) {
    Move move;
    move.bits_ = bits;
    return move;
  }

  constexpr bool operator==(const Move&) const = default;
  constexpr explicit operator bool() const { return bits_ != 0; }

 private:
  uint16_t bits_ = 0;
};
static_assert(kKnight == 1 && kQueen == 4, "the promotion field holds the piece type");

// The moves of one position, on the stack: no position has more than 218.
class MoveList {
 public:
  static constexpr int kCapacity = 256;

  MoveList() {}  // leaves the array uninitialised: clearing it costs more than generating the moves

  void push(Move move) { moves_[size_++] = move; }
  void clear() { size_ = 0; }
  int size() const { return size_; }
  bool empty() const { return size_ == 0; }
  Move operator[](int i) const { return moves_[i]; }
  const Move* begin() const { return moves_; }
  const Move* end() const { return moves_ + size_; }
  bool contains(Move move) const {
    for (const Move candidate : *this) {
      if (candidate == move) return true;
    }
    return false;
  }

 private:
  union {
    Move moves_[kCapacity];
  };
  int size_ = 0;
};

}  // namespace wavefront::chess
