// SPDX-License-Identifier: GPL-3.0-or-later
// Squares as text: "e4".
#pragma once

#include <string>

#include "chess/square.h"

namespace wavefront::chess {

inline std::string square_name(Square square) {
  return {char('a' + file_of(square)), char('1' + rank_of(square))};
}

// The square named by two characters, or kNoSquare.
constexpr Square parse_square(char file, char rank) {
  if (file < 'a' || file > 'h' || rank < '1' || rank > '8') return kNoSquare;
  return make_square(file - 'a', rank - '1');
}

}  // namespace wavefront::chess
