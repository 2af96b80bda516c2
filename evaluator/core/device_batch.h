// SPDX-License-Identifier: GPL-3.0-or-later
// One batch on a device, from the requests' memory to the answers', without the GIL.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "header/plain.h"

namespace wavefront::device {

using namespace wire;

// A request's positions: PositionBatch of protocol/batch.py.
struct Part {
  const std::byte* positions;
  const std::uint32_t* move_offsets;  // positions + 1, from 0
  const std::uint16_t* moves;
  std::size_t position_count;
  std::size_t move_count;
};

// The page-locked input block of a device: positions, then the offsets of capacity + 1 positions, then moves.
struct InputBlock {
  std::byte* memory;
  std::size_t offsets_at;
  std::size_t moves_at;
  std::size_t capacity;
};

// Concatenates the parts. Unused positions up to the capacity get no moves; their content is unchanged.
void join(const std::vector<Part>& parts, const InputBlock& block);

// A driver function with its arguments, all integers, addresses or handles.
struct Call {
  std::uintptr_t function;
  std::array<std::uintptr_t, 5> arguments;
  std::size_t argument_count;
};

// Returns the driver's status; 0 is success.
int make(const Call& call);

// Calls in three groups. The middle one is made under a lock common to all batches of a device, because the
// order of the queued work matters.
struct Submission {
  std::vector<Call> before;
  std::vector<Call> in_turn;
  std::vector<Call> after;
};

struct Failure {
  int call;  // index over all groups; -1 if none failed
  int status;
};

// Makes the calls until one fails. The last one usually waits for the device.
Failure submit(const Submission& submission, std::mutex& turn);

// True if no value is infinite or NaN.
bool is_finite(const float* values, std::size_t count);

// float32 values to copy out of page-locked memory.
struct Output {
  float* to;
  const float* from;
  std::size_t count;
};

// Copies; false if a value is infinite or NaN.
bool take(const std::vector<Output>& outputs);

}  // namespace wavefront::device
