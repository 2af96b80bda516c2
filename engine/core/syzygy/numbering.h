// SPDX-License-Identifier: GPL-3.0-or-later
// The number that a position has in its table.
//
// A table's men stand in a fixed order, like men side by side in groups. A position's number is that of its
// groups, each a digit whose base is the number of placements that the group has left to it:
//
//   Leading group. It also takes the board's symmetry away. Without pawns all eight reflections of a position
//   are one: the first man is brought into the triangle a1-d1-d4, and if it stands on the diagonal, the next
//   one that does not is brought below it. The group is three men that are the only ones of their kind or,
//   where there are no three, the kings. With pawns only the files can be mirrored: the group is the pawns of
//   one colour, and the one nearest to the edge, then to its first rank, is brought to the files a to d. Each
//   of these files has a table of its own. The other side's pawns, if both have some. The other groups. k men
//   on n free squares have C(n, k) placements, numbered as in the combinatorial number system.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "chess/bitboard.h"
#include "syzygy/material.h"

namespace wavefront::syzygy {

// A kind of man with its colour as the table has them, and how many of it there are.
struct Kind {
  Color color;
  PieceType type;
  int count;

  bool operator==(const Kind&) const = default;
};

class Numbering {
 public:
  // codes: the men in the table's order, 1 to 6 pawn to king, 8 more for Black. leading_digit, pawns_digit:
  // which digits, from the lowest, belong to the leading group and to the other side's pawns (ignored where
  // there are none). pawn_file: 0 to 3, ignored without pawns. Throws DamagedTable if the men make no
  // position or the digits do not fit.
  Numbering(std::span<const uint8_t> codes, int leading_digit, int pawns_digit, int pawn_file);

  // The men in order, like ones together.
  std::span<const Kind> kinds() const { return kinds_; }
  // The table's material, as the file has the colours.
  Material material() const;
  // How many numbers there are.
  uint64_t size() const { return size_; }

  // The number of a position, less than size(). squares: of the men in order, different from each other,
  // pawns on their ranks; they are changed. With pawns the first pawn must be the leading one
  // (lead_with_pawn).
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
  int second_pawns_ = 0;  // men of the other side's pawn group, 0 if there is none
  std::vector<Kind> kinds_;
  std::vector<Group> groups_;
  uint64_t size_ = 1;
};

// Puts the leading one of some pawns of one colour (White's, or mirrored to be) first; returns its file,
// counted from the nearer edge: 0 to 3.
int lead_with_pawn(std::span<Square> pawns);

}  // namespace wavefront::syzygy
