// SPDX-License-Identifier: GPL-3.0-or-later
// The operations on whole rows between the matrix products, in one pass over memory:
//   x = activation(input + bias + residual)     input is an element matrix, or (SPLIT) partial sums of `gemm`
//   x = (x - mean) / sqrt(variance + epsilon) * gammas + betas            NORMALISE, biased variance
//   x = x * multiply[square] + add[square]      GATE
// All in float. The row stays in registers, so mean and variance are two exact passes without memory
// accesses. PART: if not 0, the row consists of parts of PART elements, of which only the first PART_USED
// count for the norm.
//
// input, residual, out: [rows][stride] elements, partials [splits][rows][stride]; stride is WIDTH rounded up
// to a whole chunk. gammas, betas, bias: float [stride]; multiply, add: float [64][stride] by row % 64. All
// are zero behind WIDTH, which makes the padding of out zero (or an activation of zero). ROUND: the result
// also goes to `rounded` in 8 bits, [rows][WIDTH] with WIDTH a multiple of 16: times round_scale as e4m3
// numbers (e4m3.h). KEEP: it goes to out.
//
// LANES threads own a row (a wave, or the whole block for wide rows); a block processes ROWS of them at once,
// PASSES times. With several passes the next row is loaded while this one is reduced: with one row per thread
// memory was idle during the reductions (1024 wide, 16384 rows: 24 us where the bytes take 16). Grid: (rows /
// (ROWS * PASSES)).
#include "activation.h"
#if ROUND == E4M3
#include "e4m3.h"
#endif

constexpr int THREADS = LANES * ROWS;
constexpr int ROW_STRIDE = (WIDTH + CHUNK - 1) / CHUNK * CHUNK;
constexpr int CHUNKS = (ROW_STRIDE / CHUNK + LANES - 1) / LANES;
constexpr int WAVES = LANES / WAVE;

// Sum over the threads of a row.
DEVICE float row_total(float value, float* scratch) {
  value = wave_sum(value);
  if constexpr (WAVES > 1) {
    int wave = thread_index() / WAVE, first = thread_index() / LANES * WAVES;
    block_sync();  // scratch may still be read
    if (thread_index() % WAVE == 0) scratch[wave] = value;
    block_sync();
    value = scratch[first];
#pragma unroll
    for (int i = 1; i < WAVES; i++) value += scratch[first + i];
  }
  return value;
}

DEVICE int column_of(int c) {
  return (thread_index() % LANES + c * LANES) * CHUNK;
}

// The number of elements of a row that count for mean and variance, and whether a column is one of them.
constexpr int COUNTED = PART ? WIDTH / PART * PART_USED : WIDTH;
DEVICE bool counts(int column) {
  if constexpr (PART > 0) return column < WIDTH && column % PART < PART_USED;
  return column < WIDTH;
}

DEVICE void fetch(Bits128* to, const Element* from, int row, int rows) {
#pragma unroll
  for (int c = 0; c < CHUNKS; c++)
    if (row < rows && column_of(c) < ROW_STRIDE)
      to[c] = *(const Bits128*)(from + (uint64)row * ROW_STRIDE + column_of(c));
}

#if SPLIT && NORMALISE && defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#undef BLOCKS_PER_MULTIPROCESSOR
#define BLOCKS_PER_MULTIPROCESSOR (CHUNKS == 1 ? 1280 / THREADS : 0)  // else 2 of 32 registers are spilled
#endif
KERNEL(rows, THREADS)
(const Element* input, const float* partials, const float* bias, const Element* residual, const float* gammas,
 const float* betas, const float* multiply, const float* add, Element* out, int rows, int splits,
 float epsilon, char* rounded, float round_scale) {
  SHARED float scratch[THREADS / WAVE];
  int row = block_x() * PASSES * ROWS + thread_index() / LANES;
  start_kernel();
  wait_for_previous_kernel();
#if !SPLIT
  Bits128 ahead[CHUNKS];
  fetch(ahead, input, row, rows);
#endif
  for (int pass = 0; pass < PASSES; pass++, row += ROWS) {
    float x[CHUNKS][CHUNK];
    float sum = 0.0f;
#if !SPLIT
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) read_chunk(x[c], (const Element*)&ahead[c]);
    if (pass + 1 < PASSES) fetch(ahead, input, row + ROWS, rows);
#endif
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
      const int column = column_of(c);
      if (row >= rows || column >= ROW_STRIDE) {
#pragma unroll
        for (int i = 0; i < CHUNK; i++) x[c][i] = 0.0f;
        continue;
      }
      const uint64 at = (uint64)row * ROW_STRIDE + column;
#if SPLIT
#pragma unroll
      for (int i = 0; i < CHUNK; i++) x[c][i] = 0.0f;
#pragma unroll 4  // so that the loads do not wait for each other
      for (int part = 0; part < splits; part++) {
        float share[CHUNK];
        read_floats(share, partials + (uint64)part * rows * ROW_STRIDE + at);
#pragma unroll
        for (int i = 0; i < CHUNK; i++) x[c][i] += share[i];
      }
#endif
#if BIAS
      float offset[CHUNK];
      read_floats(offset, bias + column);
#pragma unroll
      for (int i = 0; i < CHUNK; i++) x[c][i] += offset[i];
#endif
#if RESIDUAL
      float skip[CHUNK];
      read_chunk(skip, residual + at);
#pragma unroll
      for (int i = 0; i < CHUNK; i++) x[c][i] += skip[i];
#endif
#pragma unroll
      for (int i = 0; i < CHUNK; i++) {
        x[c][i] = activate<ACTIVATION>(x[c][i]);
        sum += counts(column + i) ? x[c][i] : 0.0f;
      }
    }
#if NORMALISE
    const float mean = row_total(sum, scratch) / COUNTED;
    float squares = 0.0f;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++)
#pragma unroll
      for (int i = 0; i < CHUNK; i++) {
        x[c][i] -= mean;
        squares += counts(column_of(c) + i) ? x[c][i] * x[c][i] : 0.0f;
      }
    const float scale = reciprocal_sqrt(row_total(squares, scratch) / COUNTED + epsilon);
#endif
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) {
      const int column = column_of(c);
      if (row >= rows || column >= ROW_STRIDE) continue;
#if NORMALISE
      float factor[CHUNK], offset[CHUNK];
      read_floats(factor, gammas + column);
      read_floats(offset, betas + column);
#pragma unroll
      for (int i = 0; i < CHUNK; i++) x[c][i] = x[c][i] * scale * factor[i] + offset[i];
#endif
#if GATE
      float times[CHUNK], plus[CHUNK];
      read_floats(times, multiply + row % 64 * ROW_STRIDE + column);
      read_floats(plus, add + row % 64 * ROW_STRIDE + column);
#pragma unroll
      for (int i = 0; i < CHUNK; i++) x[c][i] = x[c][i] * times[i] + plus[i];
#endif
#if KEEP
      write_chunk(out + (uint64)row * ROW_STRIDE + column, x[c]);
#endif
#if ROUND == E4M3
      *(Bits64*)(rounded + (uint64)row * ROW_STRIDE + column) = e4m3_chunk(x[c], round_scale);
#endif
    }
  }
}
