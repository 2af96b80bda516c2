// SPDX-License-Identifier: GPL-3.0-or-later
// Messages with nothing unusual about them: four frames, a header, and arrays of the sizes that it says. They
// are what the cores handle by themselves; all else, and every error, is left to protocol/codec.py.
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

// The header of an evaluate with its positions, move offsets and policy indices. Nothing is stated of what
// these are, nor how they are aligned.
std::optional<EvaluateHeader> plain_evaluate(Frames frames);

// The header of a result with its logits, W D L and moves left: whole floats, of one number of positions.
std::optional<ResultHeader> plain_result(Frames frames);

}  // namespace wavefront::wire
