// SPDX-License-Identifier: GPL-3.0-or-later
// The board transforms of lc0's canonical input formats.
//
// A transform is a sum of kFlip, kMirror and kTranspose, applied in this order to the board in the view of
// the side to move. The network's input and policy use transformed squares.
#pragma once

#include <array>
#include <cstdint>

#include "chess/bitboard.h"
#include "chess/position.h"

namespace wavefront::encoding {

using namespace chess;

inline constexpr int kFlip = 1;       // mirror the files
inline constexpr int kMirror = 2;     // mirror the ranks
inline constexpr int kTranspose = 4;  // (rank, file) becomes (7 - file, 7 - rank)

// Returns lc0's transform for a position: none while castling is possible. Otherwise it moves the king to
// files e-h and, without pawns, to ranks 1-4 and below the diagonal h1-a8. On the diagonal the smaller mask
// wins.
int choose_transform(const Position& position);

inline Bitboard transform_set(Bitboard set, int transform) {
  if (transform & kFlip) set = mirror_files(set);
  if (transform & kMirror) set = mirror_ranks(set);
  if (transform & kTranspose) set = transpose(set);
  return set;
}

struct SquareTransforms {
  std::array<std::array<std::array<uint8_t, 64>, 8>, 2> to{};  // by side to move and transform
  std::array<std::array<std::array<uint8_t, 64>, 8>, 2> from{};

  constexpr SquareTransforms() {
    for (size_t color = 0; color < 2; ++color) {
      for (size_t transform = 0; transform < 8; ++transform) {
        for (Square square = 0; square < 64; ++square) {
          Square result = color == kBlack ? square ^ 56 : square;
          if (transform & kFlip) result ^= 7;
          if (transform & kMirror) result ^= 56;
          if (transform & kTranspose) result = make_square(7 - rank_of(result), 7 - file_of(result));
          to[color][transform][size_t(square)] = uint8_t(result);
          from[color][transform][size_t(result)] = uint8_t(square);
        }
      }
    }
  }
};
inline constexpr SquareTransforms kSquareTransforms;

// Converts an absolute square to a transformed one in the view of the side to move, and back.
inline Square transform_square(Square square, Color side_to_move, int transform) {
  return kSquareTransforms.to[side_to_move][size_t(transform)][size_t(square)];
}
inline Square untransform_square(Square square, Color side_to_move, int transform) {
  return kSquareTransforms.from[side_to_move][size_t(transform)][size_t(square)];
}

}  // namespace wavefront::encoding
