// SPDX-License-Identifier: GPL-3.0-or-later
// The input planes, identical to lc0's.
#include "encoding/encoder.h"

#include <algorithm>
#include <cstring>

#include "encoding/transform.h"

namespace wavefront::encoding {

namespace {

constexpr int kCastlingPlanes = 104;
constexpr int kSidePlane = 108;
constexpr int kRule50Plane = 109;
constexpr int kArmageddonPlane = 110;
constexpr int kOnesPlane = 111;
constexpr int kRepetitionPlane = 12;

constexpr bool is_v2(InputFormat format) {
  return format == InputFormat::kCanonicalV2 || format == InputFormat::kCanonicalV2Armageddon;
}
constexpr bool is_armageddon(InputFormat format) {
  return format == InputFormat::kCanonicalHectopliesArmageddon ||
         format == InputFormat::kCanonicalV2Armageddon;
}
constexpr bool is_hectoplies(InputFormat format) {
  return is_canonical(format) && format != InputFormat::kCanonical;
}

bool is_initial_position(const Position& position) {
  static const Position start = Position::start();
  return position.key() == start.key() && position.en_passant() == kNoSquare && position.same_by_rules(start);
}

// Returns true if the position `plies_before` the start of the game is filled in.
bool fills(const Position& start, HistoryFill fill, int plies_before) {
  switch (fill) {
    case HistoryFill::kNo:
      // An en-passant square determines the previous position.
      return plies_before == 1 && start.en_passant() != kNoSquare;
    case HistoryFill::kFenOnly:
      return !is_initial_position(start);
    case HistoryFill::kAlways:
      return true;
  }
  return false;
}

void write_pieces(const Position& position, Color us, uint64_t* planes) {
  for (const Color color : {us, ~us}) {
    const Bitboard own = position.pieces(color);
    for (int type = kPawn; type <= kKing; ++type) {
      const Bitboard set = own & position.pieces(PieceType(type));
      *planes++ = us == kBlack ? mirror_ranks(set) : set;
    }
  }
}

// Takes back the double step before the start position, which its en-passant square indicates.
void undo_double_step(const Position& start, Color us, uint64_t* planes) {
  const Color mover = ~start.side_to_move();
  const Square pawn = start.en_passant() ^ 8;
  const Square origin = mover == kWhite ? pawn - 16 : pawn + 16;
  const Bitboard step = bit(pawn) | bit(origin);
  planes[mover == us ? 0 : 6] ^= us == kBlack ? mirror_ranks(step) : step;
}

void write_history(const History& history, InputFormat format, HistoryFill fill, uint64_t* planes) {
  const Position& current = history.current();
  const Color us = current.side_to_move();
  const bool canonical = is_canonical(format);
  const int last = history.length() - 1;
  int written = 0;
  for (int back = 0; written < kHistoryPositions; ++back) {
    const bool before_start = back > last;
    const int source = std::min(back, last);
    const Position& position = history.at(source);
    if (canonical && position.castling_rooks() != current.castling_rooks()) break;
    if (canonical && back > 0 && position.en_passant() != kNoSquare) break;
    // V2 only has repetitions, which positions before the start cannot be.
    if (before_start && (is_v2(format) || !fills(position, fill, back - last))) break;

    const bool repeated = history.repeated_for_network(source);
    if (!is_v2(format) || repeated || back == 0) {
      uint64_t* const step = planes + written * kPlanesPerPosition;
      write_pieces(position, us, step);
      if (repeated) step[kRepetitionPlane] = kAllSquares;
      if (before_start && position.en_passant() != kNoSquare) undo_double_step(position, us, step);
      ++written;
    }
    // Positions before an irreversible move cannot repeat.
    if (canonical && position.rule50() == 0) break;
  }
}

void write_castling(const Position& position, InputFormat format, uint64_t* planes) {
  const Color us = position.side_to_move();
  for (const Color color : {us, ~us}) {
    for (const bool kingside : {false, true}) {
      const Square rook = position.castling_rook(color, kingside);
      if (rook == kNoSquare) continue;
      if (format == InputFormat::kClassical) {
        planes[kCastlingPlanes + (color == us ? 0 : 2) + kingside] = kAllSquares;
      } else {
        planes[kCastlingPlanes + kingside] |= bit(transform_square(rook, us, 0));
      }
    }
  }
}

}  // namespace

std::optional<InputFormat> input_format_from_number(int number) {
  for (const InputFormat format :
       {InputFormat::kClassical, InputFormat::kCastlingPlane, InputFormat::kCanonical,
        InputFormat::kCanonicalHectoplies, InputFormat::kCanonicalHectopliesArmageddon,
        InputFormat::kCanonicalV2, InputFormat::kCanonicalV2Armageddon}) {
    if (int(format) == number) return format;
  }
  return std::nullopt;
}

std::optional<HistoryFill> history_fill_from_name(std::string_view name) {
  if (name == "no") return HistoryFill::kNo;
  if (name == "fen_only") return HistoryFill::kFenOnly;
  if (name == "always") return HistoryFill::kAlways;
  return std::nullopt;
}

int encode(const History& history, InputFormat format, HistoryFill fill, EncodedPosition& out) {
  std::memset(&out, 0, sizeof(out));
  const Position& position = history.current();
  const bool black = position.side_to_move() == kBlack;

  write_history(history, format, fill, out.planes);
  write_castling(position, format, out.planes);
  if (!is_canonical(format)) {
    if (black) out.planes[kSidePlane] = kAllSquares;
  } else if (position.en_passant() != kNoSquare) {
    out.planes[kSidePlane] = bit(make_square(file_of(position.en_passant()), 7));
  }
  out.planes[kRule50Plane] = kAllSquares;
  out.rule50 = float(position.rule50()) / (is_hectoplies(format) ? 100.0f : 1.0f);
  if (is_armageddon(format) && black) out.planes[kArmageddonPlane] = kAllSquares;
  out.planes[kOnesPlane] = kAllSquares;

  const int transform = is_canonical(format) ? choose_transform(position) : 0;
  if (transform) {
    for (int plane = 0; plane <= kSidePlane; ++plane) {
      if (out.planes[plane]) out.planes[plane] = transform_set(out.planes[plane], transform);
    }
  }
  return transform;
}

}  // namespace wavefront::encoding
