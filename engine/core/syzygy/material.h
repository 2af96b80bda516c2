// SPDX-License-Identifier: GPL-3.0-or-later
// The men on the board, which determine a table's name.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "chess/position.h"

namespace wavefront::syzygy {

using namespace chess;

inline constexpr int kMostMen = 7;  // no larger tables exist

// Numbers of pieces and pawns of both sides by type, without the kings.
struct Material {
  std::array<std::array<uint8_t, 5>, 2> counts{};  // [color][kPawn .. kQueen]

  static Material of(const Position& position);
  // Parses a name such as "KRPvKR", with White first. Returns nothing for other names, or more men than
  // tables have.
  static std::optional<Material> from_name(std::string_view name);

  Material swapped() const { return {{counts[1], counts[0]}}; }
  bool symmetric() const { return counts[0] == counts[1]; }
  int men() const;  // kings included
  bool has_pawns() const { return counts[kWhite][kPawn] + counts[kBlack][kPawn] > 0; }
  // Unique for material of at most 15 men of a kind.
  uint64_t key() const;
  std::string name() const;

  bool operator==(const Material&) const = default;
};

}  // namespace wavefront::syzygy
