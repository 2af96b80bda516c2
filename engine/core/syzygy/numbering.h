// SPDX-License-Identifier: GPL-3.0-or-later
// The number of a position in its table.
//
// A table's men have a fixed order, in groups of like men. Each group is a digit of the position's number,
// whose base is the number of the group's possible placements:
//
//   Leading group. It also removes the board's symmetry. Without pawns, all eight reflections of a position
//   are equal. The first man is moved into the triangle a1-d1-d4. If it is on the diagonal, the next man
//   that is not is moved below it. The group has three men that are single of their kind or, without three,
//   the kings. With pawns, only the files can be mirrored. The group has the pawns of one colour. The one
//   nearest to the edge, then to its first rank, is moved to the files a to d, each with its own table. Then
//   the other side's pawns, if both have some, and the other groups. k men on n free squares have C(n, k)
//   placements, numbered as in the combinatorial number system.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "chess/bitboard.h"
#include "syzygy/material.h"

namespace wavefront::syzygy {

// A kind of man with its colour in the table, and its number.
struct Kind {
  Color color;
  PieceType type;
  int count;

  bool operator==(const Kind&) const = default;
};

class Numbering {
 public:
  // codes: the men in the table's order, 1 to 6 pawn to king, plus 8 for Black. leading_digit, pawns_digit:
  // digits, from the lowest, of the leading group and of the other side's pawns (ignored without any).
  // pawn_file: 0 to 3, ignored without pawns. Throws DamagedTable for impossible men or digits.
  Numbering(std::span<const uint8_t> codes, int leading_digit, int pawns_digit, int pawn_file);

  // The men in order, with like men grouped.
  std::span<const Kind> kinds() const { return kinds_; }
  // The table's material, with the file's colours.
  Material material() const;
  // Number of positions.
  uint64_t size() const { return size_; }

  // Returns the number of a position, less than size(). squares: of the men in order, distinct, pawns on
  // valid ranks; changed by the call. With pawns, the first pawn must be the leading one (lead_with_pawn).
  uint64_t number(std::span<Square> squares) const;

 private:
  struct Group {
    int count;
    uint64_t factor;
  };

  int leading_pieces() const;
  int leading_pawns() const;
  int leading_count() const { return groups_.front().count; }
  uint64_t leading_number(std::span<Square> squares) const;

  bool has_pawns_ = false;
  int second_pawns_ = 0;  // men of the other side's pawn group; 0 without one
  std::vector<Kind> kinds_;
  std::vector<Group> groups_;
  uint64_t size_ = 1;
};

// Moves the leading one of some pawns of one colour (White's, or mirrored) to the front. Returns its file
// from the nearer edge: 0 to 3.
int lead_with_pawn(std::span<Square> pawns);

}  // namespace wavefront::syzygy
