// SPDX-License-Identifier: GPL-3.0-or-later
// The last layer of the value and moves-left heads, one block per position and one wave per head.
//
// wdl: float [positions][3], probabilities: with WDL the softmax of three outputs, else
// ((1 + v) / 2, 0, (1 - v) / 2) of one output v in -1..1. moves_left: float [positions], plies; 0 without
// that head (MOVES_LEFT). value: [positions][VALUE_STRIDE] elements, moves: [positions][MOVES_STRIDE], the
// hidden layers of the heads, with VALUE_WIDTH and MOVES_WIDTH used. weights: float [outputs][width].
// biases: float [outputs]. Grid: (positions), 2 waves.
#include "activation.h"

constexpr int THREADS = 2 * WAVE;

// Dot product of a row with weights; every lane of the wave gets the result.
DEVICE float product(const Element* row, const float* weights, int width) {
  float sum = 0.0f;
  for (int i = thread_index() % WAVE; i < width; i += WAVE) sum += to_float(row[i]) * weights[i];
  return wave_sum(sum);
}

KERNEL(outputs, THREADS)
(const Element* value, const float* value_weights, const float* value_biases, const Element* moves,
 const float* moves_weights, const float* moves_biases, float* wdl, float* moves_left) {
  const int position = block_x();
  const bool first_lane = thread_index() % WAVE == 0;
  start_kernel();
  wait_for_previous_kernel();
  if (thread_index() < WAVE) {
    const Element* row = value + (uint64)position * VALUE_STRIDE;
#if WDL
    float x[3];
#pragma unroll
    for (int i = 0; i < 3; i++)
      x[i] = activate<VALUE_ACTIVATION>(product(row, value_weights + i * VALUE_WIDTH, VALUE_WIDTH) +
                                        value_biases[i]);
    const float largest = maximum(x[0], maximum(x[1], x[2]));
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 3; i++) sum += x[i] = exp_fast(x[i] - largest);
    if (first_lane)
      for (int i = 0; i < 3; i++) wdl[position * 3 + i] = x[i] / sum;
#else
    const float v = activate<VALUE_ACTIVATION>(product(row, value_weights, VALUE_WIDTH) + value_biases[0]);
    if (first_lane) {
      wdl[position * 3] = (1.0f + v) / 2.0f;
      wdl[position * 3 + 1] = 0.0f;
      wdl[position * 3 + 2] = (1.0f - v) / 2.0f;
    }
#endif
  } else {
#if MOVES_LEFT
    const Element* row = moves + (uint64)position * MOVES_STRIDE;
    const float plies =
        activate<MOVES_ACTIVATION>(product(row, moves_weights, MOVES_WIDTH) + moves_biases[0]);
    if (first_lane) moves_left[position] = plies;
#else
    if (first_lane) moves_left[position] = 0.0f;
#endif
  }
}
