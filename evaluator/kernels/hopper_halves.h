// Multiplying a tile in halves of its columns, so that the matrix unit does not wait for the ends of a tile:
// the last OVERLAP steps are first done for the lower half, then for the upper, during which the lower half
// is finished; the upper half is, during the first OVERLAP steps of the next tile's lower half.
#pragma once
#include "hopper_tiles.h"

constexpr int HALF = BLOCK_N / 2;
constexpr int OVERLAP = 2;  // with 3 everything was slower: too few stages are left to load into

// One step for half of the columns. The descriptors count 16 bytes: 16 of k are 2, a row of b is 8.
DEVICE void multiply_half(float (&c)[HALF / 2], uint32 shared, Turn turn, int group, int upper,
                          bool accumulate) {
  const Operands of = operands_of(shared, turn, group);
  wgmma_begin();
#pragma unroll
  for (int part = 0; part < BLOCK_K / 16; part++)
    wgmma<HALF>(c, of.a + 2 * part, of.b + upper * HALF * 8 + 2 * part, accumulate || part > 0);
  wgmma_commit();
}
DEVICE void multiply_whole(float (&low)[HALF / 2], float (&high)[HALF / 2], uint32 shared, Turn turn,
                           int group) {
  const Operands of = operands_of(shared, turn, group);
  wgmma_begin();
#pragma unroll
  for (int part = 0; part < BLOCK_K / 16; part++) wgmma<HALF>(low, of.a + 2 * part, of.b + 2 * part, true);
#pragma unroll
  for (int part = 0; part < BLOCK_K / 16; part++)
    wgmma<HALF>(high, of.a + 2 * part, of.b + HALF * 8 + 2 * part, true);
  wgmma_commit();
}

// The first OVERLAP steps of a tile for the lower half of the columns, and then for the upper. `held` names
// their stages; the last one's is still in use in the end.
DEVICE void begin_lower(float (&low)[HALF / 2], Turn (&held)[OVERLAP], Turn& turn, uint32 shared, int group) {
#pragma unroll
  for (int i = 0; i < OVERLAP; i++, turn = after(turn)) {
    held[i] = turn;
    barrier_wait(shared + FULL + 8 * turn.stage, turn.phase);
    multiply_half(low, shared, turn, group, 0, i > 0);
  }
}
DEVICE void begin_upper(float (&high)[HALF / 2], const Turn (&held)[OVERLAP], uint32 shared, int group,
                        const Tiles& tiles) {
#pragma unroll
  for (int i = 0; i < OVERLAP; i++) multiply_half(high, shared, held[i], group, 1, i > 0);
  wgmma_wait<1>();
#pragma unroll
  for (int i = 0; i < OVERLAP - 1; i++) release(shared, held[i], tiles);
}
// All steps but the first and the last OVERLAP, for all columns.
DEVICE void multiply_middle(float (&low)[HALF / 2], float (&high)[HALF / 2], Turn& last, Turn& turn,
                            int steps, uint32 shared, int group, const Tiles& tiles) {
  for (int step = OVERLAP; step < steps - OVERLAP; step++, turn = after(turn)) {
    barrier_wait(shared + FULL + 8 * turn.stage, turn.phase);
    multiply_whole(low, high, shared, turn, group);
    wgmma_wait<1>();
    release(shared, last, tiles);
    last = turn;
  }
}
// The last steps are sent off, the lower half's before the upper's, and the lower half's have ended.
DEVICE void end_tile(float (&low)[HALF / 2], float (&high)[HALF / 2], const Turn& last,
                     Turn (&ending)[OVERLAP], Turn& turn, uint32 shared, int group, const Tiles& tiles) {
#pragma unroll
  for (int i = 0; i < OVERLAP; i++, turn = after(turn)) {
    ending[i] = turn;
    barrier_wait(shared + FULL + 8 * turn.stage, turn.phase);
    multiply_half(low, shared, turn, group, 0, true);
  }
  wgmma_wait<OVERLAP>();
  release(shared, last, tiles);
#pragma unroll
  for (int i = 0; i < OVERLAP; i++) multiply_half(high, shared, ending[i], group, 1, true);
}
