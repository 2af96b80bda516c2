// SPDX-License-Identifier: GPL-3.0-or-later
// Layer norms of a product's inputs: of vectors of several rows, by statistics from the previous product, and
// of single rows, by statistics that the product computes itself; see persistent_tile.h.
#pragma once
#include "persistent_tile.h"

// Combines mean and scale of the vectors of the rows from m0 on, from those of their parts.
template <class P>
DEVICE void combine_statistics(Block& block, const Operands& o, int m0) {
  constexpr int LENGTH = P::GROUP_ROWS * P::K;
  const int wave = thread_index() / WAVE, lane = thread_index() % WAVE;
  const int last_row = m0 + P::BM < P::M ? m0 + P::BM - 1 : P::M - 1;
#pragma unroll 1
  for (int group = m0 / P::GROUP_ROWS; group <= last_row / P::GROUP_ROWS; group++) {
    constexpr int PER_LANE = (P::PARTS + WAVE - 1) / WAVE;
    float mean[PER_LANE], count[PER_LANE], sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) {
      const int part = lane + i * WAVE, left = LENGTH - part * P::PART_WIDTH;
      const bool inside = P::PARTS % WAVE == 0 || part < P::PARTS;
      const float* pair = o.statistics + (group * P::PARTS + part) * 2;
      mean[i] = inside ? pair[0] : 0.0f;
      squares += inside ? pair[1] : 0.0f;
      count[i] = !inside ? 0.0f : (float)(left < P::PART_WIDTH ? left : P::PART_WIDTH);
      sum += mean[i] * count[i];
    }
    const float group_mean = wave_sum(sum) / LENGTH;
#pragma unroll
    for (int i = 0; i < PER_LANE; i++) squares += (mean[i] - group_mean) * (mean[i] - group_mean) * count[i];
    squares = wave_sum(squares);
    if (lane == 0) {
      common_shared(block).mean[wave][group] = group_mean;
      common_shared(block).scale[wave][group] = reciprocal_sqrt(squares / LENGTH + o.epsilon);
    }
  }
  wave_sync();
}

// Normalises this wave's only chunk of inputs, in shared memory.
template <class P>
DEVICE void normalise_inputs(Block& block, int m0) {
  constexpr int ROW_CHUNKS = P::KC / CHUNK, STEP = WAVE / ROW_CHUNKS;
  const int wave = thread_index() / WAVE, lane = thread_index() % WAVE, column = lane % ROW_CHUNKS * CHUNK;
  const CommonShared& common = common_shared(block);
#pragma unroll 2
  for (int row = lane / ROW_CHUNKS; row < P::BM; row += STEP) {
    if (!P::EXACT_M && m0 + row >= P::M) break;
    const int group = (m0 + row) / P::GROUP_ROWS;
    Element* chunk = inputs_space(block, wave) + row * P::STRIDE + column;
    const int norm_row = P::NORM_ROWS == 1 ? 0 : row;
    const Element* whole = weights_space(block, 0) + P::BN * P::BULK_STRIDE + norm_row * P::BULK_NORM_STRIDE;
    const Element* norm = P::BULK ? whole + 2 * (wave * P::KC + column)
                                  : norms_space(block, wave) + norm_row * P::NORMS_STRIDE + 2 * column;
    float x[CHUNK], factor[CHUNK], offset[CHUNK];
    read_chunk(x, chunk);
    read_chunk(factor, norm);
    read_chunk(offset, norm + CHUNK);
#pragma unroll
    for (int e = 0; e < CHUNK; e++)
      x[e] = (x[e] - common.mean[wave][group]) * common.scale[wave][group] * factor[e] + offset[e];
    write_chunk(chunk, x);
  }
  wave_sync();
}

// Sums and sums of squares of the rows of a tile's inputs, for OF_INPUTS; otherwise empty. Each wave has
// those of its slice of k, and stores them behind each row of its accumulators.
template <class P>
struct RowSums {
  static constexpr int ROWS_16 = P::ROW_NORM == OF_INPUTS ? P::BM / 16 : 0;
  Accumulator sums[ROWS_16 + 1], squares[ROWS_16 + 1];
  FragmentB ones;
};
template <class P>
DEVICE void begin_row_sums(RowSums<P>& rows, Block& block) {
  if constexpr (P::ROW_NORM == OF_INPUTS) {
    rows.ones = load_b(common_shared(block).ones, 0);
#pragma unroll
    for (int i = 0; i < P::BM / 16; i++) {
      clear(rows.sums[i]);
      clear(rows.squares[i]);
    }
  }
}
// Adds the 16 rows of `fragment`, which begin at `tile`, to the sums.
template <class P>
DEVICE void add_row_sums(RowSums<P>& rows, int i, const FragmentA& fragment, const Element* tile) {
  if constexpr (P::ROW_NORM == OF_INPUTS) {
    multiply(rows.sums[i], fragment, rows.ones);
    multiply(rows.squares[i], fragment, load_b(tile, P::STRIDE));
  }
}
template <class P>
DEVICE void store_row_sums(const RowSums<P>& rows, float* to) {
#pragma unroll
  for (int i = 0; i < RowSums<P>::ROWS_16; i++)
#pragma unroll
    for (int e = 0; e < ACCUMULATORS; e++)
      if (accumulator_row(e) == accumulator_column(e)) {
        float* pair = to + (16 * i + accumulator_row(e)) * P::SUM_STRIDE + P::BN;
        pair[0] = rows.sums[i].value[e];
        pair[1] = rows.squares[i].value[e];
      }
}
// Computes mean and scale of a row. from: the row's sums of the first wave. epsilon: negative without a norm.
template <class P>
DEVICE void read_row_sums(const float* from, float epsilon, float& mean, float& scale) {
  float sum = 0.0f, squares = 0.0f;
#pragma unroll
  for (int slice = 0; slice < P::K_SLICES; slice++) {
    sum += from[slice * (A_BYTES / 4) + P::BN];
    squares += from[slice * (A_BYTES / 4) + P::BN + 1];
  }
  mean = epsilon < 0.0f ? 0.0f : sum / P::K;
  const float variance = squares / P::K - mean * mean;
  scale = epsilon < 0.0f ? 1.0f : reciprocal_sqrt((variance > 0.0f ? variance : 0.0f) + epsilon);
}
