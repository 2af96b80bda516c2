// SPDX-License-Identifier: GPL-3.0-or-later
// A prepared batch on a device, made once per slot and size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device_batch.h"

namespace wavefront::device {

// A driver call. If it is a copy whose length depends on the number of moves, `sized` is the index of the
// length argument, which is fixed + per_move * moves.
struct Step {
  Call call;
  int sized = -1;
  std::size_t fixed = 0;
  std::size_t per_move = 0;
};

// The page-locked output block of a device, in float32: W D L at its start, then the others.
struct OutputBlock {
  const std::byte* memory;
  std::size_t moves_left_at;
  std::size_t logits_at;
};

// The program for batches of up to input.capacity positions with up to most_moves moves. The memory is not
// owned, and must outlive it.
struct Program {
  InputBlock input;
  OutputBlock output;
  std::size_t most_moves = 0;
  std::vector<Step> steps;  // queue the batch without waiting
  Call done{};              // returns 0 after the batch, `busy` before, otherwise an error
  int busy = 0;
};

}  // namespace wavefront::device
