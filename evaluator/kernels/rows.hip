// What happens to whole rows between the matrix products, in one pass over memory:
//   x = activation(input + bias + residual)     input is an element matrix, or (SPLIT) partial sums of `gemm`
//   x = (x - mean) / sqrt(variance + epsilon) * gammas + betas            NORMALISE, biased variance
//   x = x * multiply[square] + add[square]      GATE
// All in float; the row stays in registers, so mean and variance are two exact passes that cost no memory.
//
// input, residual, out: [rows][stride] elements, partials [splits][rows][stride]; stride is WIDTH rounded up
// to a whole chunk. gammas, betas, bias: float [stride]; multiply, add: float [64][stride] by row % 64; zeros
// behind WIDTH, which makes the padding of out zero (or an activation of zero). LANES threads own a row (a
// wave, or the whole block for wide rows); a block has ROWS of them. Grid: (rows / ROWS).
#include "activation.h"

constexpr int THREADS = LANES * ROWS;
constexpr int ROW_STRIDE = (WIDTH + CHUNK - 1) / CHUNK * CHUNK;
constexpr int CHUNKS = (ROW_STRIDE / CHUNK + LANES - 1) / LANES;
constexpr int WAVES = LANES / WAVE;

// Sum over the threads of a row.
DEVICE float row_total(float value, float* scratch) {
  value = wave_sum(value);
  if constexpr (WAVES > 1) {
    int wave = thread_index() / WAVE, first = thread_index() / LANES * WAVES;
    block_sync();  // the scratch may still be read for the sum before
    if (thread_index() % WAVE == 0) scratch[wave] = value;
    block_sync();
    value = 0.0f;
#pragma unroll
    for (int i = 0; i < WAVES; i++) value += scratch[first + i];
  }
  return value;
}

KERNEL(rows, THREADS)
(const Element* input, const float* partials, const float* bias, const Element* residual, const float* gammas,
 const float* betas, const float* multiply, const float* add, Element* out, int rows, int splits,
 float epsilon) {
  SHARED float scratch[THREADS / WAVE];
  const int lane = thread_index() % LANES;
  const int row = block_x() * ROWS + thread_index() / LANES;
  const bool inside = row < rows;
  float x[CHUNKS][CHUNK];
  float sum = 0.0f;
  start_kernel();
  wait_for_previous_kernel();
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
    const int column = (lane + c * LANES) * CHUNK;
    const bool used = inside && column < ROW_STRIDE;
    const uint64 at = (uint64)row * ROW_STRIDE + column;
#pragma unroll
    for (int i = 0; i < CHUNK; i++) x[c][i] = 0.0f;
    if (used) {
#if SPLIT
      for (int part = 0; part < splits; part++) {
        float share[CHUNK];
        read_floats(share, partials + (uint64)part * rows * ROW_STRIDE + at);
#pragma unroll
        for (int i = 0; i < CHUNK; i++) x[c][i] += share[i];
      }
#else
      read_chunk(x[c], input + at);
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
        sum += column + i < WIDTH ? x[c][i] : 0.0f;
      }
    }
  }
#if NORMALISE
  const float mean = row_total(sum, scratch) / WIDTH;
  float squares = 0.0f;
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
    const int column = (lane + c * LANES) * CHUNK;
#pragma unroll
    for (int i = 0; i < CHUNK; i++) {
      x[c][i] -= mean;
      squares += column + i < WIDTH ? x[c][i] * x[c][i] : 0.0f;
    }
  }
  const float scale = reciprocal_sqrt(row_total(squares, scratch) / WIDTH + epsilon);
#endif
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
    const int column = (lane + c * LANES) * CHUNK;
    if (!inside || column >= ROW_STRIDE) continue;
    float factor[CHUNK], offset[CHUNK];
#if NORMALISE
    read_floats(factor, gammas + column);
    read_floats(offset, betas + column);
#pragma unroll
    for (int i = 0; i < CHUNK; i++) x[c][i] = x[c][i] * scale * factor[i] + offset[i];
#endif
#if GATE
    read_floats(factor, multiply + row % 64 * ROW_STRIDE + column);
    read_floats(offset, add + row % 64 * ROW_STRIDE + column);
#pragma unroll
    for (int i = 0; i < CHUNK; i++) x[c][i] = x[c][i] * factor[i] + offset[i];
#endif
    write_chunk(out + (uint64)row * ROW_STRIDE + column, x[c]);
  }
}
