// SPDX-License-Identifier: GPL-3.0-or-later
// Encoding of a game's current position as input of an lc0 network: 112 planes of 64 squares.
//
// Planes 13h to 13h + 12 have the position h plies back (0 to 7): our pawns, knights, bishops, rooks, queens,
// king, the opponent's, and ones if it is a repetition. 104 to 107: castling. 108: side to move or en
// passant. 109: 50-move counter. 110: zeros (Black to move in the armageddon formats). 111: ones. All planes
// are from the view of the side to move.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "chess/history.h"

namespace wavefront::encoding {

using namespace chess;

// Input formats, with their numbers in the network file.
enum class InputFormat : int {
  kClassical = 1,
  kCastlingPlane = 2,
  kCanonical = 3,
  kCanonicalHectoplies = 4,
  kCanonicalHectopliesArmageddon = 132,
  kCanonicalV2 = 5,
  kCanonicalV2Armageddon = 133,
};

// Filling of the positions before the start of the game: empty; the start position, but empty for the initial
// position of chess; or always the start position.
enum class HistoryFill { kNo, kFenOnly, kAlways };

std::optional<InputFormat> input_format_from_number(int number);
std::optional<HistoryFill> history_fill_from_name(std::string_view name);  // "no", "fen_only", "always"

constexpr bool is_canonical(InputFormat format) {
  return format != InputFormat::kClassical && format != InputFormat::kCastlingPlane;
}

inline constexpr int kPlanes = 112;
inline constexpr int kPlanesPerPosition = 13;
inline constexpr int kHistoryPositions = 8;

// The wire format. Bit s of planes[p] is input element [p][s]: 1 if set, in plane 109 `rule50`.
struct EncodedPosition {
  uint64_t planes[kPlanes];
  float rule50;  // plies, or plies / 100 in format 4 and above
  uint32_t reserved;
};
static_assert(sizeof(EncodedPosition) == 904);

// Encodes the current position, and returns the applied board transform (0 in formats 1 and 2), which
// policy_index needs, too.
int encode(const History& history, InputFormat format, HistoryFill fill, EncodedPosition& out);

}  // namespace wavefront::encoding
