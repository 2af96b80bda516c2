// SPDX-License-Identifier: GPL-3.0-or-later
// Sets of squares as 64-bit masks (bit n is square n) and the operations on them.
#pragma once

#include <bit>
#include <cstdint>
#ifdef _MSC_VER
#include <stdlib.h>
#endif

#include "chess/square.h"

namespace wavefront::chess {

using Bitboard = uint64_t;

inline constexpr Bitboard kAllSquares = ~Bitboard{0};
inline constexpr Bitboard kFileA = 0x0101010101010101;
inline constexpr Bitboard kFileH = kFileA << 7;
inline constexpr Bitboard kRank1 = 0xFF;
inline constexpr Bitboard kDarkSquares = 0xAA55AA55AA55AA55;

constexpr Bitboard bit(Square square) {
  return Bitboard{1} << square;
}
constexpr Bitboard rank_mask(int rank) {
  return kRank1 << (8 * rank);
}
constexpr Square first_square(Bitboard set) {
  return std::countr_zero(set);
}
constexpr int count(Bitboard set) {
  return std::popcount(set);
}
constexpr bool at_most_one(Bitboard set) {
  return (set & (set - 1)) == 0;
}

constexpr Square pop_first(Bitboard& set) {
  const Square square = first_square(set);
  set &= set - 1;
  return square;
}

// Mirrors the ranks: a1 becomes a8.
inline Bitboard mirror_ranks(Bitboard set) {
#ifdef _MSC_VER
  return _byteswap_uint64(set);
#else
  return __builtin_bswap64(set);
#endif
}

// Mirrors the files: a1 becomes h1.
constexpr Bitboard mirror_files(Bitboard set) {
  set = ((set >> 1) & 0x5555555555555555) | ((set & 0x5555555555555555) << 1);
  set = ((set >> 2) & 0x3333333333333333) | ((set & 0x3333333333333333) << 2);
  return ((set >> 4) & 0x0F0F0F0F0F0F0F0F) | ((set & 0x0F0F0F0F0F0F0F0F) << 4);
}

// Reflects the board at the diagonal a8-h1: (rank, file) becomes (7 - file, 7 - rank).
constexpr Bitboard transpose(Bitboard set) {
  Bitboard t = set ^ (set << 36);
  set ^= 0xF0F0F0F00F0F0F0F & (t ^ (set >> 36));
  t = 0xCCCC0000CCCC0000 & (set ^ (set << 18));
  set ^= t ^ (t >> 18);
  t = 0xAA00AA00AA00AA00 & (set ^ (set << 9));
  return set ^ (t ^ (t >> 9));
}

// The set moved by `Delta` squares, a king's step, without wrapping around the edges.
template <int Delta>
constexpr Bitboard shift(Bitboard set) {
  constexpr int kFileStep = ((Delta + 9) & 7) - 1;
  static_assert(kFileStep >= -1 && kFileStep <= 1);
  if constexpr (kFileStep == 1) set &= ~kFileH;
  if constexpr (kFileStep == -1) set &= ~kFileA;
  if constexpr (Delta > 0) {
    return set << Delta;
  } else {
    return set >> -Delta;
  }
}

}  // namespace wavefront::chess
