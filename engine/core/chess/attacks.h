// SPDX-License-Identifier: GPL-3.0-or-later
// Attack sets of each piece on each square, and the lines between squares.
//
// Sliding pieces: a fast PEXT instruction packs the occupied squares of the lines into an index of a table of
// all attack sets (840 KiB). Other CPUs use the obstruction-difference method: o ^ (o - 2s) marks the squares
// up to the first obstacle, and a byte swap reverses the direction. Ranks, which a byte swap does not change,
// come from a small table.
//
// The module calls `initialise_attacks` once when it is loaded, which fills the tables.
#pragma once

#if defined(__BMI2__) && !defined(__znver1__) && !defined(__znver2__) && !defined(__bdver4__)
#define WAVEFRONT_PEXT 1  // the excluded CPUs have PEXT in slow microcode
#include <immintrin.h>
#else
#define WAVEFRONT_PEXT 0
#endif

#include "chess/bitboard.h"

namespace wavefront::chess {

struct AttackTables {
  Bitboard pawn[2][64];
  Bitboard knight[64];
  Bitboard king[64];
  Bitboard bishop_rays[64];  // on an empty board
  Bitboard rook_rays[64];
  Bitboard between[64][64];  // squares strictly between two on a line, else empty
};

extern AttackTables g_attacks;

void initialise_attacks();

#if WAVEFRONT_PEXT
struct SlidingAttacks {
  Bitboard relevant;  // squares whose occupation matters: the rays without their last squares
  const Bitboard* table;

  Bitboard operator()(Bitboard occupied) const { return table[_pext_u64(occupied, relevant)]; }
};
extern SlidingAttacks g_bishop_attacks[64];
extern SlidingAttacks g_rook_attacks[64];

inline Bitboard bishop_attacks(Square square, Bitboard occupied) {
  return g_bishop_attacks[square](occupied);
}
inline Bitboard rook_attacks(Square square, Bitboard occupied) {
  return g_rook_attacks[square](occupied);
}
#else
Bitboard bishop_attacks(Square square, Bitboard occupied);
Bitboard rook_attacks(Square square, Bitboard occupied);
#endif

inline Bitboard pawn_attacks(Color color, Square square) {
  return g_attacks.pawn[color][square];
}
inline Bitboard knight_attacks(Square square) {
  return g_attacks.knight[square];
}
inline Bitboard king_attacks(Square square) {
  return g_attacks.king[square];
}
inline Bitboard between(Square a, Square b) {
  return g_attacks.between[a][b];
}

}  // namespace wavefront::chess
