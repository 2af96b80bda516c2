// SPDX-License-Identifier: GPL-3.0-or-later
// Construction of the attack tables, and sliding attacks without a fast PEXT.
#include "chess/attacks.h"

#include <array>
#include <initializer_list>
#include <utility>

namespace wavefront::chess {

AttackTables g_attacks;

namespace {

// rank_attacks[occupation of files b to g][file]: attacked files of a rook on that rank.
std::array<std::array<uint8_t, 8>, 64> g_rank_attacks;

struct Lines {
  Bitboard file, diagonal, antidiagonal;  // through the square, without it
};
std::array<Lines, 64> g_lines;

// The squares from `square` in one direction to the edge.
Bitboard ray(Square square, int file_step, int rank_step) {
  Bitboard squares = 0;
  int file = file_of(square) + file_step;
  int rank = rank_of(square) + rank_step;
  for (; file >= 0 && file < 8 && rank >= 0 && rank < 8; file += file_step, rank += rank_step) {
    squares |= bit(make_square(file, rank));
  }
  return squares;
}

Bitboard jumps(Square square, std::initializer_list<std::pair<int, int>> steps) {
  Bitboard squares = 0;
  for (const auto& [file_step, rank_step] : steps) {
    const int file = file_of(square) + file_step;
    const int rank = rank_of(square) + rank_step;
    if (file >= 0 && file < 8 && rank >= 0 && rank < 8) squares |= bit(make_square(file, rank));
  }
  return squares;
}

uint8_t attacks_on_rank(int file, int occupied) {
  int attacked = 0;
  for (const int step : {-1, 1}) {
    for (int f = file + step; f >= 0 && f < 8; f += step) {
      attacked |= 1 << f;
      if (occupied >> f & 1) break;
    }
  }
  return uint8_t(attacked);
}

// The squares of `line` up to and including the first obstacle in both directions. Not for ranks.
Bitboard line_attacks(Square square, Bitboard occupied, Bitboard line) {
  const Bitboard obstacles = occupied & line;
  const Bitboard up = obstacles - 2 * bit(square);
  const Bitboard down = mirror_ranks(mirror_ranks(obstacles) - 2 * mirror_ranks(bit(square)));
  return (up ^ down) & line;
}

Bitboard computed_bishop_attacks(Square square, Bitboard occupied) {
  const Lines& lines = g_lines[square];
  return line_attacks(square, occupied, lines.diagonal) | line_attacks(square, occupied, lines.antidiagonal);
}

Bitboard computed_rook_attacks(Square square, Bitboard occupied) {
  const int rank_shift = square & 56;
  const int middle = int(occupied >> rank_shift >> 1 & 63);
  const Bitboard rank = Bitboard{g_rank_attacks[middle][file_of(square)]} << rank_shift;
  return rank | line_attacks(square, occupied, g_lines[square].file);
}

}  // namespace

#if WAVEFRONT_PEXT
SlidingAttacks g_bishop_attacks[64];
SlidingAttacks g_rook_attacks[64];

namespace {

std::array<Bitboard, 5248> g_bishop_table;
std::array<Bitboard, 102400> g_rook_table;

template <class Compute>
void fill(SlidingAttacks (&attacks)[64], Bitboard* table, const Bitboard (&rays)[64], Compute compute) {
  for (Square square = 0; square < 64; ++square) {
    const Bitboard edges = ((kFileA | kFileH) & ~(kFileA << file_of(square))) |
                           ((kRank1 | rank_mask(7)) & ~rank_mask(rank_of(square)));
    const Bitboard relevant = rays[square] & ~edges;
    attacks[square] = {relevant, table};
    Bitboard occupied = 0;
    do {  // every subset of `relevant`, in the order of its packed index
      *table++ = compute(square, occupied);
      occupied = (occupied - relevant) & relevant;
    } while (occupied);
  }
}

}  // namespace
#else
Bitboard bishop_attacks(Square square, Bitboard occupied) {
  return computed_bishop_attacks(square, occupied);
}
Bitboard rook_attacks(Square square, Bitboard occupied) {
  return computed_rook_attacks(square, occupied);
}
#endif

void initialise_attacks() {
  for (int occupied = 0; occupied < 64; ++occupied) {
    for (int file = 0; file < 8; ++file)
      g_rank_attacks[occupied][file] = attacks_on_rank(file, occupied << 1);
  }
  for (Square square = 0; square < 64; ++square) {
    g_attacks.pawn[kWhite][square] = jumps(square, {{-1, 1}, {1, 1}});
    g_attacks.pawn[kBlack][square] = jumps(square, {{-1, -1}, {1, -1}});
    g_attacks.knight[square] =
        jumps(square, {{1, 2}, {2, 1}, {2, -1}, {1, -2}, {-1, -2}, {-2, -1}, {-2, 1}, {-1, 2}});
    g_attacks.king[square] =
        jumps(square, {{0, 1}, {1, 1}, {1, 0}, {1, -1}, {0, -1}, {-1, -1}, {-1, 0}, {-1, 1}});
    g_lines[square] = {ray(square, 0, 1) | ray(square, 0, -1), ray(square, 1, 1) | ray(square, -1, -1),
                       ray(square, 1, -1) | ray(square, -1, 1)};
    g_attacks.bishop_rays[square] = g_lines[square].diagonal | g_lines[square].antidiagonal;
    g_attacks.rook_rays[square] = g_lines[square].file | ray(square, 1, 0) | ray(square, -1, 0);
    for (int file_step = -1; file_step <= 1; ++file_step) {
      for (int rank_step = -1; rank_step <= 1; ++rank_step) {
        if (file_step == 0 && rank_step == 0) continue;
        const Bitboard squares = ray(square, file_step, rank_step);
        for (Bitboard rest = squares; rest;) {
          const Square other = pop_first(rest);
          g_attacks.between[square][other] = squares & ray(other, -file_step, -rank_step);
        }
      }
    }
  }
#if WAVEFRONT_PEXT
  fill(g_bishop_attacks, g_bishop_table.data(), g_attacks.bishop_rays, computed_bishop_attacks);
  fill(g_rook_attacks, g_rook_table.data(), g_attacks.rook_rays, computed_rook_attacks);
#endif
}

}  // namespace wavefront::chess
