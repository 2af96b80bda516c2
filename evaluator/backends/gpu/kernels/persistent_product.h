// SPDX-License-Identifier: GPL-3.0-or-later
// A small matrix product by one block, whose weights are prefetched before its inputs exist; see
// persistent.hip.
//
// Sliced-K: each of the eight waves takes every eighth chunk of KC, with its own shared memory and
// asynchronous copies, so that no barrier is needed before the accumulators are added up in the epilogue. The
// compiler knows the whole shape, so a copy is one instruction. If there is a TMA, it loads the weights, a
// row at a time. Without it the loads of a multiprocessor return in order of issue, so that the first poll of
// a counter waits for weights from memory.
#pragma once
#include "persistent_norms.h"
#include "persistent_tile.h"

// Copies COUNT rows of COLUMNS elements by one wave; elements that are not `valid` become zeros.
template <int COUNT, int COLUMNS, int FROM_STRIDE, int TO_STRIDE, class Valid>
DEVICE void load_rectangle(Element* to, const Element* from, Valid valid) {
  constexpr int ROW_CHUNKS = COLUMNS / CHUNK, STEP = WAVE / ROW_CHUNKS;
  static_assert(STEP > 0 && COUNT % STEP == 0, "");
  const int lane = thread_index() % WAVE, first = lane / ROW_CHUNKS, column = lane % ROW_CHUNKS * CHUNK;
  from += first * FROM_STRIDE + column;
  to += first * TO_STRIDE + column;
#pragma unroll
  for (int row = 0; row < COUNT; row += STEP)
    load_chunk(to + row * TO_STRIDE, from + row * FROM_STRIDE, valid(first + row, column));
}

template <class P>
DEVICE void load_weights(Block& block, const Element* weights, int n0, int round) {
  const int wave = thread_index() / WAVE, k0 = (wave + round * WAVES) * P::KC;
  load_rectangle<P::BN, P::KC, P::WEIGHTS_STRIDE, P::STRIDE>(
      weights_space(block, wave) + round % P::SLOTS * P::B_SLOT, weights + n0 * P::WEIGHTS_STRIDE + k0,
      [&](int row, int column) {
        return (P::EXACT_N || n0 + row < P::N) && (P::EXACT_K || k0 + column < P::K);
      });
}
template <class P>
DEVICE void load_inputs(Block& block, const Element* a, int m0, int round) {
  const int wave = thread_index() / WAVE, k0 = (wave + round * WAVES) * P::KC;
  load_rectangle<P::BM, P::KC, P::K, P::STRIDE>(
      inputs_space(block, wave) + round % P::SLOTS * P::A_SLOT, a + m0 * P::K + k0, [&](int row, int column) {
        return (P::EXACT_M || m0 + row < P::M) && (P::EXACT_K || k0 + column < P::K);
      });
}
// True if this wave has a chunk of k in a round.
template <class P>
DEVICE bool has_chunk(int round) {
  return P::CHUNKS % WAVES == 0 || thread_index() / WAVE + round * WAVES < P::CHUNKS;
}

// Called by one thread: loads this block's half of a tile's weights into both blocks of the pair, as soon as
// both have multiplied by the previous ones. Each block calls this once for each such tile, and before that
// signals nothing that the other may wait for.
template <class P>
DEVICE void share_weights(Block& block, const Element* weights, int rank) {
#if PAIRS
  constexpr int HALF = P::BN / 2 * P::WEIGHTS_STRIDE;
  uint64* barrier = common_shared(block).barrier;
  bulk_arrive_in_cluster(barrier + 1, 2);
  bulk_wait(barrier + 1, block.free_parity);
  bulk_copy_to_cluster(barrier, weights_space(block, 0) + rank * HALF, weights + rank * HALF,
                       HALF * sizeof(Element), 2);
#endif
}

// Starts loading the data of a tile that does not depend on other tiles. The TMA is used by the waves from
// `from` on: issuing one copy takes a wave about 0.1 us.
template <class P>
DEVICE void prefetch(Block& block, const Operands& o, int tile, int from) {
  const int wave = thread_index() / WAVE, m0 = tile_row<P>(tile), n0 = tile_column<P>(tile);
#if PAIRS
  if (P::PAIRED) block.free_parity ^= 1;  // by all threads, because another one copies each time
#endif
  block.vector_buffer ^= 1;
  ColumnVectors& vectors = common_shared(block).vectors[block.vector_buffer];
  if constexpr (P::BULK) {
    if (thread_index() % WAVE != 0 || wave < from) return;
    const int first = wave - from, orders = WAVES - from;
    uint64* barrier = common_shared(block).barrier;
    constexpr uint32 ROW_BYTES = P::K * sizeof(Element), NORM_BYTES = P::GROUP_ROWS ? 2 * ROW_BYTES : 0;
    if (first == 0) {
      constexpr int VECTORS = (P::ROW_NORM != NO_ROW_NORM) + (P::ROW_NORM == OF_RESIDUAL);
      const int count = VECTORS + (o.bias ? 1 : 0);
      constexpr uint32 WEIGHT_BYTES = P::BN * P::WEIGHTS_STRIDE * sizeof(Element);
      bulk_expect(barrier, WEIGHT_BYTES + P::NORM_ROWS * NORM_BYTES + count * P::BN * 4);
      if constexpr (P::PAIRED) {
        share_weights<P>(block, o.weights + n0 * P::WEIGHTS_STRIDE, tile % 2);
      } else if (PAIRS) {
        bulk_copy(barrier, weights_space(block, 0), o.weights + n0 * P::WEIGHTS_STRIDE, WEIGHT_BYTES);
      }
      if (o.bias) bulk_copy(barrier, vectors.bias, o.bias + n0, P::BN * 4);
      if (VECTORS > 0) bulk_copy(barrier, vectors.factors, o.factors + n0, P::BN * 4);
      if (VECTORS > 1) bulk_copy(barrier, vectors.offsets, o.offsets + n0, P::BN * 4);
    }
    Element* to = weights_space(block, 0);
    if (!PAIRS)
#pragma unroll
      for (int row = first; row < P::BN; row += orders)
        bulk_copy(barrier, to + row * P::BULK_STRIDE, o.weights + (n0 + row) * P::K, ROW_BYTES);
    if constexpr (P::GROUP_ROWS > 0)
#pragma unroll
      for (int row = first; row < P::NORM_ROWS; row += orders)
        bulk_copy(barrier, to + P::BN * P::BULK_STRIDE + row * P::BULK_NORM_STRIDE,
                  o.norms + (m0 + row) % P::GROUP_ROWS * 2 * P::K, NORM_BYTES);
    return;
  }
#pragma unroll
  for (int round = 0; round < P::SLOTS && round < P::ROUNDS; round++)
    if (has_chunk<P>(round)) load_weights<P>(block, o.weights, n0, round);
  if constexpr (P::GROUP_ROWS > 0) {
    if (has_chunk<P>(0)) {
      const int lane = thread_index() % WAVE;
#pragma unroll
      for (int index = lane; index < P::NORM_ROWS * (2 * P::KC / CHUNK); index += WAVE) {
        const int row = index / (2 * P::KC / CHUNK), column = index % (2 * P::KC / CHUNK) * CHUNK;
        const int at = 2 * wave * P::KC + column, in_group = (m0 + row) % P::GROUP_ROWS;
        load_chunk(norms_space(block, wave) + row * P::NORMS_STRIDE + column,
                   o.norms + in_group * 2 * P::K + at, at < 2 * P::K);
      }
    }
  }
  auto load_vector = [&](float* to, const float* from) {
    if (from && thread_index() < P::BN / 4)
      load_chunk(to + 4 * thread_index(), from + n0 + 4 * thread_index(),
                 P::EXACT_N || n0 + 4 * thread_index() < P::N);
  };
  load_vector(vectors.bias, o.bias);
  if constexpr (P::ROW_NORM != NO_ROW_NORM) load_vector(vectors.factors, o.factors);
  if constexpr (P::ROW_NORM == OF_RESIDUAL) load_vector(vectors.offsets, o.offsets);
  commit_loads();
}

// Runs one tile after its `prefetch`. Its inputs from other blocks must be complete. INPUTS_MADE: its inputs
// are in shared memory already. next: prefetches the next weights as soon as the space of these is free.
template <class P, bool INPUTS_MADE = false, class Next>
DEVICE void multiply_tile(Block& block, const Operands& o, int tile, Next next) {
  const ColumnVectors& vectors = common_shared(block).vectors[block.vector_buffer];
  const int wave = thread_index() / WAVE, m0 = tile_row<P>(tile), n0 = tile_column<P>(tile);
  constexpr int ROW_THREADS = P::BN / CHUNK;
  const int row = thread_index() / ROW_THREADS, column = thread_index() % ROW_THREADS * CHUNK;
  const bool inside = row < P::BM && (P::EXACT_M || m0 + row < P::M) && (P::EXACT_N || n0 + column < P::N);
  const int at = (m0 + row) * P::N + n0 + column;

#pragma unroll
  for (int round = 0; round < P::SLOTS; round++) {
    if (!INPUTS_MADE && round < P::ROUNDS && has_chunk<P>(round)) load_inputs<P>(block, o.a, m0, round);
    commit_loads();
  }
  Bits128 skip{};  // the residual, loaded early
  if (o.residual && inside) skip = *(const Bits128*)(o.residual + at);
  float mean = 0.0f, scale = 1.0f;  // of the thread's row
  if constexpr (P::ROW_NORM == OF_RESIDUAL)
    if (inside) {
      mean = o.row_norms[2 * (m0 + row)];
      scale = o.row_norms[2 * (m0 + row) + 1];
    }
  if constexpr (P::GROUP_ROWS > 0) combine_statistics<P>(block, o, m0);

  RowSums<P> row_sums;
  begin_row_sums<P>(row_sums, block);
  Accumulator c[P::BM / 16][P::BN / 16];
#pragma unroll
  for (int i = 0; i < P::BM / 16; i++)
#pragma unroll
    for (int j = 0; j < P::BN / 16; j++) clear(c[i][j]);
  if constexpr (P::BULK) {
    bulk_wait(common_shared(block).barrier, block.parity);
    block.parity ^= 1;
  }
#pragma unroll 1
  for (int round = 0; round < P::ROUNDS; round++) {
    wait_for_loads<P::SLOTS - 1>();
    if constexpr (P::GROUP_ROWS > 0) normalise_inputs<P>(block, m0);
    const int slot = P::ROUNDS <= P::SLOTS ? round : round % P::SLOTS;
    const Element* left = inputs_space(block, wave) + slot * P::A_SLOT;
    const Element* right = P::BULK ? weights_space(block, 0) + (wave + round * WAVES) * P::KC
                                   : weights_space(block, wave) + slot * P::B_SLOT;
    constexpr int RIGHT_STRIDE = P::BULK ? P::BULK_STRIDE : P::STRIDE;
    if (has_chunk<P>(round)) {
      // With 32 rows and their sums, unrolling all steps spills registers.
      constexpr int STEPS_UNROLLED = P::ROW_NORM != OF_INPUTS || P::BM == 16 ? 4 : P::BN > 48 ? 1 : 2;
#pragma unroll STEPS_UNROLLED
      for (int step = 0; step < P::KC; step += 16) {
        FragmentB fragments[P::BN / 16];
#pragma unroll
        for (int j = 0; j < P::BN / 16; j++)
          fragments[j] = load_b(right + j * 16 * RIGHT_STRIDE + step, RIGHT_STRIDE);
#pragma unroll
        for (int i = 0; i < P::BM / 16; i++) {
          FragmentA fragment = load_a(left + i * 16 * P::STRIDE + step, P::STRIDE);
#pragma unroll
          for (int j = 0; j < P::BN / 16; j++) multiply(c[i][j], fragment, fragments[j]);
          add_row_sums<P>(row_sums, i, fragment, left + i * 16 * P::STRIDE + step);
        }
      }
    }
    if constexpr (P::ROUNDS > P::SLOTS) {
      wave_sync();
      if (round + P::SLOTS < P::ROUNDS && has_chunk<P>(round + P::SLOTS)) {
        load_inputs<P>(block, o.a, m0, round + P::SLOTS);
        if constexpr (!P::BULK) load_weights<P>(block, o.weights, n0, round + P::SLOTS);
      }
    }
    commit_loads();
  }

  // Each wave stores its accumulators over its inputs; then every thread adds up a chunk.
  wave_sync();
  if (has_chunk<P>(0)) {
    float* sums = (float*)inputs_space(block, wave);
#pragma unroll
    for (int i = 0; i < P::BM / 16; i++)
#pragma unroll
      for (int j = 0; j < P::BN / 16; j++)
#pragma unroll
        for (int e = 0; e < ACCUMULATORS; e++)
          sums[(16 * i + accumulator_row(e)) * P::SUM_STRIDE + 16 * j + accumulator_column(e)] =
              c[i][j].value[e];
    store_row_sums<P>(row_sums, sums);
  }
  block_sync();
  // Few waves take part in the epilogue; the others, if they are enough, prefetch the next weights.
  constexpr int EPILOGUE_WAVES = (P::BM * P::BN / CHUNK + WAVE - 1) / WAVE;
  next(2 * EPILOGUE_WAVES <= WAVES ? EPILOGUE_WAVES : 0);
  float x[CHUNK], other[CHUNK];
#pragma unroll
  for (int e = 0; e < CHUNK; e++) x[e] = 0.0f;
  if (inside) {
    const float* sums = (const float*)inputs_space(block, 0) + row * P::SUM_STRIDE;
    // In large tiles, unrolling all slices spills registers.
    constexpr int SLICES_UNROLLED = P::BM * P::BN > 768 ? 4 : WAVES;
#pragma unroll SLICES_UNROLLED
    for (int slice = 0; slice < P::K_SLICES; slice++) {
      read_floats(other, sums + slice * (A_BYTES / 4) + column);
#pragma unroll
      for (int e = 0; e < CHUNK; e++) x[e] += other[e];
    }
    if constexpr (P::ROW_NORM == OF_INPUTS) {
      read_row_sums<P>(sums, o.epsilon, mean, scale);
      read_floats(other, vectors.factors + column);
#pragma unroll
      for (int e = 0; e < CHUNK; e++) x[e] = (x[e] - mean * other[e]) * scale;
      if (n0 == 0 && column == 0) {
        o.row_norms[2 * (m0 + row)] = mean;
        o.row_norms[2 * (m0 + row) + 1] = scale;
      }
    }
    if (o.bias) {
      read_floats(other, vectors.bias + column);
#pragma unroll
      for (int e = 0; e < CHUNK; e++) x[e] += other[e];
    }
    if (o.residual) {
      read_chunk(other, (const Element*)&skip);
      if constexpr (P::ROW_NORM == OF_RESIDUAL) {
        float factors[CHUNK], offsets[CHUNK];
        read_floats(factors, vectors.factors + column);
        read_floats(offsets, vectors.offsets + column);
#pragma unroll
        for (int e = 0; e < CHUNK; e++) other[e] = (other[e] - mean) * scale * factors[e] + offsets[e];
      }
#pragma unroll
      for (int e = 0; e < CHUNK; e++) x[e] += other[e];
    }
#pragma unroll
    for (int e = 0; e < CHUNK; e++) x[e] = activate<P::ACTIVATION>(x[e]);
    write_chunk(o.out + at, x);
  }
  if (o.statistics_out) {
    const int columns = P::EXACT_N || P::N - n0 > P::BN ? P::BN : P::N - n0;
    float sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int e = 0; e < CHUNK; e++) sum += inside ? x[e] : 0.0f;
#pragma unroll
    for (int mask = 1; mask < ROW_THREADS; mask *= 2) sum += wave_xor(sum, mask);
    const float mean = sum / columns;
#pragma unroll
    for (int e = 0; e < CHUNK; e++) squares += inside ? (x[e] - mean) * (x[e] - mean) : 0.0f;
#pragma unroll
    for (int mask = 1; mask < ROW_THREADS; mask *= 2) squares += wave_xor(squares, mask);
    if (inside && column == 0) {
      float* pair = o.statistics_out + ((m0 + row) * P::TILES_N + n0 / P::BN) * 2;
      pair[0] = mean;
      pair[1] = squares;
    }
  }
}
