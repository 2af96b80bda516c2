// SPDX-License-Identifier: GPL-3.0-or-later
// Random numbers of the position key (Zobrist hashing), constant so that keys are stable.
#pragma once

#include <array>
#include <cstdint>

#include "chess/mix.h"
#include "chess/square.h"

namespace wavefront::chess {

struct ZobristTable {
  std::array<std::array<std::array<uint64_t, 64>, 6>, 2> piece{};
  std::array<uint64_t, 64> castling_rook{};  // by the square of the rook that may castle
  std::array<uint64_t, 8> en_passant_file{};
  uint64_t black_to_move{};

  constexpr ZobristTable() {
    uint64_t state = 0x57617665;
    const auto next = [&state] { return mix(state += kGoldenGamma); };
    for (auto& color : piece) {
      for (auto& type : color) {
        for (auto& number : type) number = next();
      }
    }
    for (auto& number : castling_rook) number = next();
    for (auto& number : en_passant_file) number = next();
    black_to_move = next();
  }
};

inline constexpr ZobristTable kZobrist;

}  // namespace wavefront::chess
