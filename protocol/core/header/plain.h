// SPDX-License-Identifier: GPL-3.0-or-later
// Plain messages: four frames, a common header, and arrays of the sizes that it declares. The cores handle
// only
// these; protocol/wire/codec.py handles all others and every error.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "header/headers.h"
#include "zmtp/message.h"

namespace wavefront::wire {

inline constexpr std::size_t kPlainFrames = 4;

// Bytes of one encoded position: POSITION_DTYPE of protocol/batch.py.
inline constexpr std::size_t kPositionBytes = 904;

using Frames = std::span<const Bytes>;

// Returns the header of an evaluate with positions, move offsets and policy indices. Content and alignment of
// the arrays are not checked.
std::optional<EvaluateHeader> plain_evaluate(Frames frames);

// Returns the header of a result with logits, W D L and moves left: complete floats, consistent in size.
std::optional<ResultHeader> plain_result(Frames frames);

}  // namespace wavefront::wire
