// SPDX-License-Identifier: GPL-3.0-or-later
// Layer norm of a whole row by one wave, for persistent.hip.
#pragma once
#include "persistent_tile.h"

constexpr int NORM_CHUNKS = (WIDTH + CHUNK * WAVE - 1) / (CHUNK * WAVE);

// In the layout of ../plan. epsilon: negative without a norm.
struct Norm {
  const float* gammas;
  const float* betas;
  float epsilon;
  uint32 unused;
};

DEVICE int norm_column(int c) {
  return (thread_index() % WAVE + c * WAVE) * CHUNK;
}
DEVICE bool norm_inside(int c) {
  return WIDTH % (CHUNK * WAVE) == 0 || norm_column(c) < WIDTH;
}
DEVICE void load_row(float (&x)[NORM_CHUNKS][CHUNK], const Element* row) {
#pragma unroll
  for (int c = 0; c < NORM_CHUNKS; c++) {
    if (norm_inside(c)) {
      read_chunk(x[c], row + norm_column(c));
    } else {
#pragma unroll
      for (int e = 0; e < CHUNK; e++) x[c][e] = 0.0f;
    }
  }
}
DEVICE void store_row(Element* row, const float (&x)[NORM_CHUNKS][CHUNK]) {
#pragma unroll
  for (int c = 0; c < NORM_CHUNKS; c++)
    if (norm_inside(c)) write_chunk(row + norm_column(c), x[c]);
}
// gammas, betas: WIDTH floats each.
DEVICE void normalise_row(float (&x)[NORM_CHUNKS][CHUNK], const float* gammas, const float* betas,
                          float epsilon) {
  float sum = 0.0f, squares = 0.0f;
#pragma unroll
  for (int c = 0; c < NORM_CHUNKS; c++)
#pragma unroll
    for (int e = 0; e < CHUNK; e++) sum += x[c][e];
  const float mean = wave_sum(sum) / WIDTH;
#pragma unroll
  for (int c = 0; c < NORM_CHUNKS; c++)
#pragma unroll
    for (int e = 0; e < CHUNK; e++) {
      x[c][e] = norm_inside(c) ? x[c][e] - mean : 0.0f;
      squares += x[c][e] * x[c][e];
    }
  const float scale = reciprocal_sqrt(wave_sum(squares) / WIDTH + epsilon);
#pragma unroll
  for (int c = 0; c < NORM_CHUNKS; c++)
    if (norm_inside(c)) {
      float factor[CHUNK], offset[CHUNK];
      read_floats(factor, gammas + norm_column(c));
      read_floats(offset, betas + norm_column(c));
#pragma unroll
      for (int e = 0; e < CHUNK; e++) x[c][e] = x[c][e] * scale * factor[e] + offset[e];
    }
}
