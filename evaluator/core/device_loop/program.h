// SPDX-License-Identifier: GPL-3.0-or-later
// How a device is made to run a batch, prepared once for each of its batches in flight and sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device_batch.h"

namespace wavefront::device {

// A call of the driver. If it is a copy whose length follows from the number of moves, `sized` is the
// argument that has the length, which is fixed + per_move * moves.
struct Step {
  Call call;
  int sized = -1;
  std::size_t fixed = 0;
  std::size_t per_move = 0;
};

// The page-locked block that a device writes, in float32: W D L at its start, then the others.
struct OutputBlock {
  const std::byte* memory;
  std::size_t moves_left_at;
  std::size_t logits_at;
};

// Everything for batches of up to input.capacity positions with up to most_moves moves. The memory that is
// named here is someone else's and outlives this.
struct Program {
  InputBlock input;
  OutputBlock output;
  std::size_t most_moves = 0;
  std::vector<Step> steps;  // queue the batch and do not wait for it
  Call done{};              // 0 when the batch is over, `busy` before that, an error otherwise
  int busy = 0;
};

}  // namespace wavefront::device
