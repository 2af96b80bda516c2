// SPDX-License-Identifier: GPL-3.0-or-later
// One batch on a device, from the requests' memory to the answers', without the Python interpreter.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "header/plain.h"

namespace wavefront::device {

using namespace wire;

// Positions as a request holds them: PositionBatch of protocol/batch.py.
struct Part {
  const std::byte* positions;
  const std::uint32_t* move_offsets;  // positions + 1, from 0
  const std::uint16_t* moves;
  std::size_t position_count;
  std::size_t move_count;
};

// The page-locked block that a device reads: positions, then the offsets of capacity + 1 positions, then
// moves.
struct InputBlock {
  std::byte* memory;
  std::size_t offsets_at;
  std::size_t moves_at;
  std::size_t capacity;
};

// Writes the parts one after the other. Positions up to the capacity get no moves; what they hold is left as
// it is.
void join(const std::vector<Part>& parts, const InputBlock& block);

// A function of a GPU's driver with its arguments, all of them integers, addresses or handles.
struct Call {
  std::uintptr_t function;
  std::array<std::uintptr_t, 5> arguments;
  std::size_t argument_count;
};

// What the driver returns; 0 is success.
int make(const Call& call);

// Calls in three groups; the middle one is made under a lock that all batches of a device share, since the
// order of what it queues matters.
struct Submission {
  std::vector<Call> before;
  std::vector<Call> in_turn;
  std::vector<Call> after;
};

struct Failure {
  int call;  // counted through all groups, -1 if none failed
  int status;
};

// Makes the calls until one fails. The last one usually waits for the device.
Failure submit(const Submission& submission, std::mutex& turn);

// Whether no value is infinite or not a number.
bool is_finite(const float* values, std::size_t count);

// float32 values to be copied out of page-locked memory.
struct Output {
  float* to;
  const float* from;
  std::size_t count;
};

// Copies; false if a value is infinite or not a number.
bool take(const std::vector<Output>& outputs);

}  // namespace wavefront::device
