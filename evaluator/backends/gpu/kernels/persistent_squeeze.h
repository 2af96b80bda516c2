// SPDX-License-Identifier: GPL-3.0-or-later
// The first half of smolgen for persistent.hip: compress, which works on single squares, and dense1, which
// works on all squares together.
//
// A tile of `squeeze` is four squares: their norm, compress, and the part of dense1 for these squares, whose
// sums are stored as a row of `parts`. Each tile of dense2 then adds the 16 rows of a position and applies
// activation and norm itself, which reads 16 KB (BT4) instead of needing another phase. The matrix unit
// computes both products, each with one vector instead of 16; the other rows are computed from arbitrary
// data, and not used.
//
// Shared memory: in the inputs' space the weights of dense1, in the host's layout; in the weights' space
// those of compress, gammas and betas, the four rows, the sums of each wave, and the compressed values.
#pragma once
#include "persistent_product.h"
#include "persistent_rows.h"

constexpr int SQUARES = 4, SQUEEZE_PARTS = 64 / SQUARES, SQUEEZE_TILES = POSITIONS * SQUEEZE_PARTS;
constexpr int SQUEEZED = SQUARES * COMPRESSED;
constexpr int ROW_STRIDE = WIDTH + CHUNK;
constexpr int SLICE_STRIDE = SQUEEZED + CHUNK, SLICE_ELEMENTS = DENSE1_WIDTH * SLICE_STRIDE;
constexpr int COMPRESS_TILES = (COMPRESSED + 15) / 16;
// In bytes. Reads of rows beyond the four may see the data stored after them.
constexpr int NORM_BYTES = 2 * WIDTH * 4, SLICE_BYTES = SLICE_ELEMENTS * (int)sizeof(Element);
constexpr int ROWS_BYTES = 16 * ROW_STRIDE * (int)sizeof(Element);
constexpr int SUMS_BYTES = SQUARES * ROW_STRIDE * (int)sizeof(Element) + (4 * WAVES + 2) * SQUEEZED;
static_assert(WIDTH % 16 == 0 && SQUEEZED % 16 == 0, "");
constexpr int COMPRESS_ELEMENTS = 16 * COMPRESS_TILES * ROW_STRIDE;
static_assert(SLICE_BYTES <= WAVES * A_BYTES, "");
static_assert(COMPRESS_ELEMENTS * (int)sizeof(Element) + NORM_BYTES +
                      (ROWS_BYTES > SUMS_BYTES ? ROWS_BYTES : SUMS_BYTES) <=
                  WAVES * B_BYTES,
              "");

// Starts loading the weights of a tile. compress: [COMPRESSED][WIDTH]; slices:
// [16][DENSE1_WIDTH][SLICE_STRIDE].
DEVICE void prefetch_squeeze(Block& block, const Norm& norm, const Element* compress, const Element* slices,
                             int tile) {
  slices += tile % SQUEEZE_PARTS * SLICE_ELEMENTS;
  Element* rows = weights_space(block, 0);
  Element* slice = inputs_space(block, 0);
  float* vectors = (float*)(rows + COMPRESS_ELEMENTS);
  const int wave = thread_index() / WAVE;
  if constexpr (BULK_COPY) {
    bulk_fence();  // the block itself has written to the inputs' space
    block_sync();
    if (thread_index() % WAVE != 0) return;
    uint64* barrier = common_shared(block).barrier;
    constexpr uint32 ROW_BYTES = WIDTH * sizeof(Element);
    if (wave == 0) {
      bulk_expect(barrier, COMPRESSED * ROW_BYTES + SLICE_BYTES + NORM_BYTES);
      bulk_copy(barrier, slice, slices, SLICE_BYTES);
      bulk_copy(barrier, vectors, norm.gammas, NORM_BYTES / 2);
      bulk_copy(barrier, vectors + WIDTH, norm.betas, NORM_BYTES / 2);
    }
    for (int row = wave; row < COMPRESSED; row += WAVES)
      bulk_copy(barrier, rows + row * ROW_STRIDE, compress + row * WIDTH, ROW_BYTES);
  } else {
    for (int at = thread_index() * CHUNK; at < SLICE_ELEMENTS; at += THREADS * CHUNK)
      load_chunk(slice + at, slices + at, true);
    for (int at = thread_index() * 4; at < WIDTH; at += THREADS * 4) {
      load_chunk(vectors + at, norm.gammas + at, true);
      load_chunk(vectors + WIDTH + at, norm.betas + at, true);
    }
    for (int row = wave; row < COMPRESSED; row += WAVES)
      for (int at = thread_index() % WAVE * CHUNK; at < WIDTH; at += WAVE * CHUNK)
        load_chunk(rows + row * ROW_STRIDE + at, compress + row * WIDTH + at, true);
    commit_loads();
    wait_for_loads<0>();
    block_sync();
  }
}

// Runs one tile after its `prefetch_squeeze`, when its squares are complete. epsilon: of the norm. parts:
// [tiles][DENSE1_WIDTH].
DEVICE void squeeze(Block& block, const Element* board, float epsilon, int tile, float* parts) {
  const Element* compress = weights_space(block, 0);
  const Element* slice = inputs_space(block, 0);
  const float* vectors = (const float*)(compress + COMPRESS_ELEMENTS);
  Element* rows = (Element*)(vectors + 2 * WIDTH);
  float* sums = (float*)(rows + SQUARES * ROW_STRIDE);
  Element* squeezed = (Element*)(sums + WAVES * SQUEEZED);  // 16-byte aligned, like everything before it
  const int wave = thread_index() / WAVE;

  static_assert(SQUARES <= WAVES, "");
  float x[NORM_CHUNKS][CHUNK];
  if (wave < SQUARES) load_row(x, board + (tile * SQUARES + wave) * WIDTH);
  if constexpr (BULK_COPY) {
    bulk_wait(common_shared(block).barrier, block.parity);
    block.parity ^= 1;
  }
  if (wave < SQUARES) {
    if (epsilon >= 0.0f) normalise_row(x, vectors, vectors + WIDTH, epsilon);
    store_row(rows + wave * ROW_STRIDE, x);
  }
  block_sync();

  Accumulator c[COMPRESS_TILES];
#pragma unroll
  for (int j = 0; j < COMPRESS_TILES; j++) clear(c[j]);
#pragma unroll 2
  for (int k = wave * 16; k < WIDTH; k += WAVES * 16) {
    const FragmentA fragment = load_a(rows + k, ROW_STRIDE);
#pragma unroll
    for (int j = 0; j < COMPRESS_TILES; j++)
      multiply(c[j], fragment, load_b(compress + j * 16 * ROW_STRIDE + k, ROW_STRIDE));
  }
  // Sums may overwrite unused rows that other waves still read.
#pragma unroll
  for (int j = 0; j < COMPRESS_TILES; j++)
#pragma unroll
    for (int e = 0; e < ACCUMULATORS; e++) {
      const int row = accumulator_row(e), column = 16 * j + accumulator_column(e);
      if (row < SQUARES && column < COMPRESSED)
        sums[wave * SQUEEZED + row * COMPRESSED + column] = c[j].value[e];
    }
  block_sync();
  for (int at = thread_index(); at < SQUEEZED; at += THREADS) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < WAVES; i++) sum += sums[i * SQUEEZED + at];
    squeezed[at] = to_element(sum);
  }
  bulk_fence();  // the next weights may be copied over rows and sums
  block_sync();
  for (int first = wave * 16; first < DENSE1_WIDTH; first += WAVES * 16) {
    Accumulator outputs;
    clear(outputs);
#pragma unroll
    for (int k = 0; k < SQUEEZED; k += 16)
      multiply(outputs, load_a(slice + first * SLICE_STRIDE + k, SLICE_STRIDE), load_b(squeezed + k, 0));
#pragma unroll
    for (int e = 0; e < ACCUMULATORS; e++) {
      const int output = first + accumulator_row(e);
      if (accumulator_column(e) == 0 && output < DENSE1_WIDTH)
        parts[tile * DENSE1_WIDTH + output] = outputs.value[e];
    }
  }
}

// The inputs of dense2, whose product is P. Each of its tiles makes them from the parts itself, and each wave
// its own chunk of k. A lane has PER_LANE columns.
template <class P>
struct SqueezedVectors {
  static constexpr int PER_LANE = (P::KC + WAVE - 1) / WAVE;
  float bias[PER_LANE], gamma[PER_LANE], beta[PER_LANE];
};
template <class P>
DEVICE int squeezed_column(int i) {
  return thread_index() / WAVE * P::KC + thread_index() % WAVE + i * WAVE;
}
template <class P>
DEVICE bool squeezed_inside(int i) {
  return (P::KC % WAVE == 0 || thread_index() % WAVE + i * WAVE < P::KC) && squeezed_column<P>(i) < P::K;
}
// bias: float. norms: gammas and betas in alternating chunks. Loaded before the parts are complete.
template <class P>
DEVICE void load_squeezed_vectors(SqueezedVectors<P>& own, const float* bias, const Element* norms) {
#pragma unroll
  for (int i = 0; i < SqueezedVectors<P>::PER_LANE; i++)
    if (squeezed_inside<P>(i)) {
      const int column = squeezed_column<P>(i), chunk = column / CHUNK * 2 * CHUNK + column % CHUNK;
      own.bias[i] = bias[column];
      own.gamma[i] = to_float(norms[chunk]);
      own.beta[i] = to_float(norms[chunk + CHUNK]);
    }
}
template <class P, int SQUEEZE_ACTIVATION>
DEVICE void make_dense2_inputs(Block& block, const SqueezedVectors<P>& own, const float* parts,
                               float epsilon) {
  constexpr int PER_LANE = SqueezedVectors<P>::PER_LANE;
  static_assert(P::ROUNDS == 1 && POSITIONS <= MAX_GROUPS, "");
  CommonShared& common = common_shared(block);
  const int wave = thread_index() / WAVE, left = P::K - wave * P::KC;
  const int count = left < 0 ? 0 : left < P::KC ? left : P::KC;  // columns of this wave
  float x[POSITIONS][PER_LANE];
#pragma unroll
  for (int position = 0; position < POSITIONS; position++) {
    float sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) {
      x[position][i] = 0.0f;
      if (!squeezed_inside<P>(i)) continue;
      const float* from = parts + position * SQUEEZE_PARTS * DENSE1_WIDTH + squeezed_column<P>(i);
      float part[SQUEEZE_PARTS], total = own.bias[i];
#pragma unroll
      for (int j = 0; j < SQUEEZE_PARTS; j++) part[j] = from[j * DENSE1_WIDTH];
#pragma unroll
      for (int j = 0; j < SQUEEZE_PARTS; j++) total += part[j];
      x[position][i] = activate<SQUEEZE_ACTIVATION>(total);
      sum += x[position][i];
    }
    const float mean = wave_sum(sum) / (count ? count : 1);
#pragma unroll
    for (int i = 0; i < PER_LANE; i++)
      squares += squeezed_inside<P>(i) ? (x[position][i] - mean) * (x[position][i] - mean) : 0.0f;
    squares = wave_sum(squares);
    if (thread_index() % WAVE == 0) {
      common.mean[wave][position] = mean;
      common.scale[wave][position] = squares;
    }
  }
  block_sync();
#pragma unroll
  for (int position = 0; position < POSITIONS; position++) {
    float mean = 0.0f, squares = 0.0f;
#pragma unroll
    for (int i = 0; i < WAVES; i++) {
      const int of = P::K - i * P::KC;
      mean += common.mean[i][position] * (of < 0 ? 0 : of < P::KC ? of : P::KC);
    }
    mean /= P::K;
#pragma unroll
    for (int i = 0; i < WAVES; i++) {
      const int of = P::K - i * P::KC;
      const float deviation = common.mean[i][position] - mean;
      squares += common.scale[i][position] + deviation * deviation * (of < 0 ? 0 : of < P::KC ? of : P::KC);
    }
    const float scale = reciprocal_sqrt(squares / P::K + epsilon);
#pragma unroll
    for (int i = 0; i < PER_LANE; i++)
      if (P::KC % WAVE == 0 || thread_index() % WAVE + i * WAVE < P::KC)
        inputs_space(block, wave)[position * P::STRIDE + thread_index() % WAVE + i * WAVE] = to_element(
            squeezed_inside<P>(i) ? (x[position][i] - mean) * scale * own.gamma[i] + own.beta[i] : 0.0f);
  }
  wave_sync();
}
