// SPDX-License-Identifier: GPL-3.0-or-later
// Squeeze and excitation at the end of a residual block, one block of threads per position:
//   z = excite(squeeze(mean over the squares of y))
//   out = activation(sigmoid(z[c]) y + z[CHANNELS + c] + skip)
//
// y, skip, out: [positions * 64][STRIDE] elements, CHANNELS of them used. squeeze: float [CHANNELS][HIDDEN]
// and excite: float [HIDDEN][2 CHANNELS], both transposed so that neighbouring threads read neighbouring
// weights. Grid: (positions), 256 threads. y is read twice; the second time it is in L2.
#include "activation.h"

constexpr int THREADS = 256;
constexpr int ROW_CHUNKS = STRIDE / CHUNK;

KERNEL(squeeze_excite, THREADS)
(const Element* y, const Element* skip, const float* squeeze, const float* squeeze_bias, const float* excite,
 const float* excite_bias, Element* out) {
  SHARED float pooled[CHANNELS];
  SHARED float hidden[HIDDEN];
  SHARED float z[2 * CHANNELS];
  const uint64 start = (uint64)block_x() * 64 * STRIDE;
  start_kernel();
  wait_for_previous_kernel();
  for (int c = thread_index(); c < CHANNELS; c += THREADS) {
    float sum = 0.0f;
    for (int square = 0; square < 64; square++) sum += to_float(y[start + square * STRIDE + c]);
    pooled[c] = sum / 64.0f;
  }
  block_sync();
  for (int h = thread_index(); h < HIDDEN; h += THREADS) {
    float sum = squeeze_bias[h];
    for (int c = 0; c < CHANNELS; c++) sum += pooled[c] * squeeze[c * HIDDEN + h];
    hidden[h] = activate<SQUEEZE_ACTIVATION>(sum);
  }
  block_sync();
  for (int c = thread_index(); c < 2 * CHANNELS; c += THREADS) {
    float sum = excite_bias[c];
    for (int h = 0; h < HIDDEN; h++) sum += hidden[h] * excite[h * 2 * CHANNELS + c];
    z[c] = c < CHANNELS ? sigmoid(sum) : sum;
  }
  block_sync();
  for (int index = thread_index(); index < 64 * ROW_CHUNKS; index += THREADS) {
    const int column = index % ROW_CHUNKS * CHUNK;
    const uint64 at = start + (uint64)(index / ROW_CHUNKS) * STRIDE + column;
    float x[CHUNK], before[CHUNK];
    read_chunk(x, y + at);
    read_chunk(before, skip + at);
#pragma unroll
    for (int i = 0; i < CHUNK; i++) {
      const int c = column + i;
      x[i] = c < CHANNELS ? activate<ACTIVATION>(z[c] * x[i] + z[CHANNELS + c] + before[i]) : 0.0f;
    }
    write_chunk(out + at, x);
  }
}
