// SPDX-License-Identifier: GPL-3.0-or-later
#include "request.h"

#include <cmath>
#include <cstring>

namespace wavefront::device {

namespace {

constexpr std::uint32_t kMaxLegalMoves = 256;
constexpr std::uint16_t kPolicySize = 1858;
constexpr std::size_t kClockAt = 896;     // float32 in a position
constexpr std::size_t kReservedAt = 900;  // uint32

}  // namespace

bool is_sound(const Part& part) {
  const std::uint32_t* const offsets = part.move_offsets;
  if (offsets[0] != 0 || offsets[part.position_count] != part.move_count) return false;
  bool good = true;
  for (std::size_t i = 0; i < part.position_count; ++i) {
    // A descending offset wraps around to a large number of moves.
    good &= offsets[i + 1] - offsets[i] <= kMaxLegalMoves;
    const std::byte* const position = part.positions + i * kPositionBytes;
    float clock;
    std::uint32_t reserved;
    std::memcpy(&clock, position + kClockAt, sizeof clock);
    std::memcpy(&reserved, position + kReservedAt, sizeof reserved);
    good &= std::isfinite(clock) && reserved == 0;
  }
  for (std::size_t i = 0; i < part.move_count; ++i) good &= part.moves[i] < kPolicySize;
  return good;
}

}  // namespace wavefront::device
