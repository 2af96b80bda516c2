// SPDX-License-Identifier: GPL-3.0-or-later
#include "header/plain.h"

#include <cstdint>

namespace wavefront::wire {

namespace {

constexpr std::size_t kOffsetBytes = 4, kMoveBytes = 2, kFloatBytes = 4, kMostMoves = 256;

// Limit of the protocol (WIRE_MAX_POSITIONS).
constexpr std::size_t kMostPositions = 65536;

// Longer headers are left to protocol/wire/codec.py.
constexpr std::size_t kMostOfHeader = 4096;

bool has_plain_shape(Frames frames) {
  return frames.size() == kPlainFrames && frames[0].size() <= kMostOfHeader;
}

}  // namespace

std::optional<EvaluateHeader> plain_evaluate(Frames frames) {
  if (!has_plain_shape(frames)) return std::nullopt;
  const auto header = evaluate_header(frames[0]);
  if (!header || header->count > static_cast<std::int64_t>(kMostPositions)) return std::nullopt;
  const auto count = static_cast<std::size_t>(header->count);
  const std::size_t positions = frames[1].size(), offsets = frames[2].size(), moves = frames[3].size();
  if (positions != count * kPositionBytes || offsets != (count + 1) * kOffsetBytes ||
      moves % kMoveBytes != 0 || moves > count * kMostMoves * kMoveBytes)
    return std::nullopt;
  return header;
}

std::optional<ResultHeader> plain_result(Frames frames) {
  if (!has_plain_shape(frames)) return std::nullopt;
  const auto header = result_header(frames[0]);
  if (!header) return std::nullopt;
  const std::size_t logits = frames[1].size(), wdl = frames[2].size(), moves_left = frames[3].size();
  const std::size_t count = moves_left / kFloatBytes;
  if (count > kMostPositions || moves_left % kFloatBytes != 0 || wdl != 3 * moves_left ||
      logits % kFloatBytes != 0 || logits > count * kMostMoves * kFloatBytes)
    return std::nullopt;
  return header;
}

}  // namespace wavefront::wire
