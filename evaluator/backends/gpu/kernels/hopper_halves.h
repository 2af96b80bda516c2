// SPDX-License-Identifier: GPL-3.0-or-later
// Multiplies a tile in halves of its columns, so that the matrix unit does not wait for the epilogue. The
// last OVERLAP steps are done first for the lower half, then for the upper one, during which the lower half's
// epilogue runs. The upper half's epilogue runs during the first OVERLAP steps of the next tile's lower half.
#pragma once
#include "hopper_tiles.h"

constexpr int HALF_N = BLOCK_N / 2;
constexpr int OVERLAP = 2;  // with 3 everything was slower: too few stages remain for loading

// One step for half of the columns: the lower (upper = 0) or the upper ones.
DEVICE void mma_half(float (&c)[HALF_N / 2], const Consumer& consumer, PipelineState state, int upper,
                     bool accumulate) {
  const Descriptors of = stage_descriptors(consumer, state);
  wgmma_fence();
#pragma unroll
  for (int part = 0; part < BLOCK_K / 16; part++)
    wgmma<HALF_N, FORMAT>(c, of.a + 2 * part, of.b + upper * HALF_N * 8 + 2 * part, accumulate || part > 0);
  wgmma_commit();
}
// One step for all columns.
DEVICE void mma_whole(float (&low)[HALF_N / 2], float (&high)[HALF_N / 2], const Consumer& consumer,
                      PipelineState state) {
  const Descriptors of = stage_descriptors(consumer, state);
  wgmma_fence();
#pragma unroll
  for (int part = 0; part < BLOCK_K / 16; part++)
    wgmma<HALF_N, FORMAT>(low, of.a + 2 * part, of.b + 2 * part, true);
#pragma unroll
  for (int part = 0; part < BLOCK_K / 16; part++)
    wgmma<HALF_N, FORMAT>(high, of.a + 2 * part, of.b + HALF_N * 8 + 2 * part, true);
  wgmma_commit();
}

// `read`, below, is the stage to multiply next.

// The first OVERLAP steps of a tile for the lower half of the columns, and then for the upper one. The second
// function releases the stages `acquired` by the first, except the last, which is still being read.
DEVICE void mma_head_lower(float (&low)[HALF_N / 2], PipelineState (&acquired)[OVERLAP], PipelineState& read,
                           const Consumer& consumer) {
#pragma unroll
  for (int i = 0; i < OVERLAP; i++, read = next_state(read)) {
    acquired[i] = read;
    consumer_wait(consumer, read);
    mma_half(low, consumer, read, 0, i > 0);
  }
}
DEVICE void mma_head_upper(float (&high)[HALF_N / 2], const PipelineState (&acquired)[OVERLAP],
                           const Consumer& consumer) {
#pragma unroll
  for (int i = 0; i < OVERLAP; i++) mma_half(high, consumer, acquired[i], 1, i > 0);
  wgmma_wait<1>();
#pragma unroll
  for (int i = 0; i < OVERLAP - 1; i++) consumer_release(consumer, acquired[i]);
}
// All steps but the first and the last OVERLAP, for all columns. in_use: the stage that is still being read,
// before and after.
DEVICE void mma_mainloop(float (&low)[HALF_N / 2], float (&high)[HALF_N / 2], PipelineState& in_use,
                         PipelineState& read, int steps, const Consumer& consumer) {
  for (int step = OVERLAP; step < steps - OVERLAP; step++, read = next_state(read)) {
    consumer_wait(consumer, read);
    mma_whole(low, high, consumer, read);
    wgmma_wait<1>();
    consumer_release(consumer, in_use);
    in_use = read;
  }
}
// Issues the last OVERLAP steps, the lower half's before the upper's. On return all earlier steps are done,
// and the stages `acquired` must still be released.
DEVICE void mma_tail(float (&low)[HALF_N / 2], float (&high)[HALF_N / 2], const PipelineState& in_use,
                     PipelineState (&acquired)[OVERLAP], PipelineState& read, const Consumer& consumer) {
#pragma unroll
  for (int i = 0; i < OVERLAP; i++, read = next_state(read)) {
    acquired[i] = read;
    consumer_wait(consumer, read);
    mma_half(low, consumer, read, 0, true);
  }
  wgmma_wait<OVERLAP>();
  consumer_release(consumer, in_use);
#pragma unroll
  for (int i = 0; i < OVERLAP; i++) mma_half(high, consumer, acquired[i], 1, true);
}
