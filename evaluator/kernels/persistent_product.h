// A small matrix product by one block, its weights asked for before its inputs exist; see persistent.hip.
//
// The eight waves share k: each takes every eighth chunk of KC, with shared memory and asynchronous copies of
// its own, so that no barrier is needed before the sums are added up at the end. Everything about the shape
// is known to the compiler, so that a copy is one instruction. Where there is a copy engine it brings the
// weights, a row at a time: otherwise the loads of a multiprocessor come back in the order in which they were
// asked for, and the first poll of a counter waits for weights from memory.
#pragma once
#include "activation.h"
#include "bulk.h"
#include "grid.h"
#include "matrix.h"

constexpr int WAVES = 8;
constexpr int THREADS = WAVES * WAVE;
constexpr int MAX_GROUPS = 8;
constexpr int MAX_BN = 64;
constexpr int SUM_GAP = 8;

struct Shared {
  uint64 barrier[2];  // of the weights; the second only keeps what follows aligned
  float bias[MAX_BN];
  float mean[WAVES][MAX_GROUPS], scale[WAVES][MAX_GROUPS];
};

// Where things lie in shared memory. The weights' space is a wave's own; that of the inputs belongs to the
// whole block while a tile is finished and in an attention.
struct Block {
  char* shared;
  uint32 parity;  // of the next round of the weights' barrier
};
DEVICE Element* weights_of(Block& block, int wave) {
  return (Element*)(block.shared + wave * B_BYTES);
}
DEVICE Element* inputs_of(Block& block, int wave) {
  return (Element*)(block.shared + WAVES * B_BYTES + wave * A_BYTES);
}
DEVICE Element* norms_of(Block& block, int wave) {
  return (Element*)(block.shared + WAVES * B_BYTES + wave * A_BYTES + A_BYTES / 2);
}
DEVICE Shared& common_of(Block& block) {
  return *(Shared*)(block.shared + WAVES * (A_BYTES + B_BYTES));
}

// 16 bytes, or zeros.
DEVICE void copy_ahead(void* to, const void* from, bool valid) {
#if ASYNC_COPY
  copy_async(to, from, valid);
#else
  if (valid)
    copy_chunk((Element*)to, (const Element*)from);
  else
    zero_chunk((Element*)to);
#endif
}
DEVICE void commit_ahead() {
#if ASYNC_COPY
  copy_commit();
#endif
}
// All but the last PENDING groups of copies have arrived, for the whole wave.
template <int PENDING>
DEVICE void wave_loaded() {
#if ASYNC_COPY
  copy_wait<PENDING>();
#endif
  wave_sync();
}

// out[m][n] = activation(a[m][k] weights[n][k]^T + bias + residual), in tiles of BM x BN.
//
// GROUP_ROWS: if not 0, so many rows of a are one vector that is normalised first, by statistics in PARTS
// parts of PART_WIDTH elements, which the product before has left.
template <int M_, int N_, int K_, int BM_, int BN_, int ACTIVATION_ = ACTIVATION_NONE, int GROUP_ROWS_ = 0,
          int PARTS_ = 0, int PART_WIDTH_ = 0>
struct Product {
  static constexpr int M = M_, N = N_, K = K_, BM = BM_, BN = BN_, ACTIVATION = ACTIVATION_;
  static constexpr int GROUP_ROWS = GROUP_ROWS_, PARTS = PARTS_, PART_WIDTH = PART_WIDTH_;
  static constexpr int TILES_N = (N + BN - 1) / BN, TILES = (M + BM - 1) / BM * TILES_N;
  // Chunks of which every wave gets equally many, where there are such.
  static constexpr int KC = MAX_KC == 64 && K % (64 * WAVES) == 0 ? 64 : 32;
  static constexpr int CHUNKS = (K + KC - 1) / KC, SHARES = CHUNKS < WAVES ? CHUNKS : WAVES;
  static constexpr int STRIDE = KC + CHUNK, A_SLOT = BM * STRIDE, B_SLOT = BN * STRIDE;
  static constexpr int NORMS_STRIDE = 2 * KC + CHUNK, SUM_STRIDE = BN + SUM_GAP;
  static constexpr int A_SLOTS = A_BYTES / (GROUP_ROWS ? 2 : 1) / (A_SLOT * (int)sizeof(Element));
  static constexpr int B_SLOTS = B_BYTES / (B_SLOT * (int)sizeof(Element));
  static constexpr bool EXACT_M = M % BM == 0, EXACT_N = N % BN == 0, EXACT_K = K % KC == 0;
  // All weights of a tile come at once, by the copy engine, as rows of K that the waves share.
  static constexpr int WHOLE_STRIDE = K + CHUNK;
  // A norm of single rows has one row of gammas and betas: asked for 16 times by every block, it is a hot
  // spot.
  static constexpr int NORM_ROWS = GROUP_ROWS < BM ? GROUP_ROWS == 1 ? 1 : GROUP_ROWS ? BM : 0 : BM;
  static constexpr int WHOLE_NORM_STRIDE = 2 * K + CHUNK, WHOLE_NORMS = NORM_ROWS * WHOLE_NORM_STRIDE;
  static constexpr bool WHOLE = BULK_COPY && EXACT_N && EXACT_K &&
                                (BN * WHOLE_STRIDE + WHOLE_NORMS) * (int)sizeof(Element) <= WAVES * B_BYTES;
  static constexpr int SLOTS = WHOLE || A_SLOTS < B_SLOTS ? A_SLOTS : B_SLOTS;
  static constexpr int ROUNDS = (CHUNKS + WAVES - 1) / WAVES;
  static_assert(SLOTS > 0 && BM * SUM_STRIDE * 4 <= A_BYTES, "shared memory is too small for this tile");
  static_assert(!GROUP_ROWS || (ROUNDS == 1 && BM * NORMS_STRIDE * (int)sizeof(Element) <= A_BYTES / 2), "");
  static_assert(BM * BN / CHUNK <= THREADS && BN <= MAX_BN, "a thread finishes one chunk at most");
};

// Operands; null for what a product has not. norms: gammas and betas in turns, a chunk of each. statistics
// and made: [rows or groups][parts] pairs of a mean and the sum of squared differences from it.
struct Operands {
  const Element* a;
  const Element* weights;
  const float* bias;
  const Element* residual;
  Element* out;
  const Element* norms;
  float epsilon;
  const float* statistics;
  float* made;
};

// A wave's copy of COUNT rows of COLUMNS elements; those that are not `valid` become zeros.
template <int COUNT, int COLUMNS, int FROM_STRIDE, int TO_STRIDE, class Valid>
DEVICE void load_rectangle(Element* to, const Element* from, Valid valid) {
  constexpr int ROW_CHUNKS = COLUMNS / CHUNK, STEP = WAVE / ROW_CHUNKS;
  static_assert(STEP > 0 && COUNT % STEP == 0, "");
  const int lane = thread_index() % WAVE, first = lane / ROW_CHUNKS, column = lane % ROW_CHUNKS * CHUNK;
  from += first * FROM_STRIDE + column;
  to += first * TO_STRIDE + column;
#pragma unroll
  for (int row = 0; row < COUNT; row += STEP)
    copy_ahead(to + row * TO_STRIDE, from + row * FROM_STRIDE, valid(first + row, column));
}

template <class P>
DEVICE void load_weights(Block& block, const Element* weights, int n0, int round) {
  const int wave = thread_index() / WAVE, k0 = (wave + round * WAVES) * P::KC;
  load_rectangle<P::BN, P::KC, P::K, P::STRIDE>(weights_of(block, wave) + round % P::SLOTS * P::B_SLOT,
                                                weights + n0 * P::K + k0, [&](int row, int column) {
                                                  return (P::EXACT_N || n0 + row < P::N) &&
                                                         (P::EXACT_K || k0 + column < P::K);
                                                });
}
template <class P>
DEVICE void load_inputs(Block& block, const Element* a, int m0, int round) {
  const int wave = thread_index() / WAVE, k0 = (wave + round * WAVES) * P::KC;
  load_rectangle<P::BM, P::KC, P::K, P::STRIDE>(
      inputs_of(block, wave) + round % P::SLOTS * P::A_SLOT, a + m0 * P::K + k0, [&](int row, int column) {
        return (P::EXACT_M || m0 + row < P::M) && (P::EXACT_K || k0 + column < P::K);
      });
}
// Whether the wave has a chunk in a round.
template <class P>
DEVICE bool takes_part(int round) {
  return P::CHUNKS % WAVES == 0 || thread_index() / WAVE + round * WAVES < P::CHUNKS;
}

// Asks for what a tile needs that no other tile makes.
template <class P>
DEVICE void prefetch(Block& block, const Operands& o, int tile) {
  const int wave = thread_index() / WAVE, m0 = tile / P::TILES_N * P::BM, n0 = tile % P::TILES_N * P::BN;
  if constexpr (P::WHOLE) {
    if (thread_index() % WAVE != 0) return;
    uint64* barrier = common_of(block).barrier;
    constexpr uint32 ROW_BYTES = P::K * sizeof(Element), NORM_BYTES = P::GROUP_ROWS ? 2 * ROW_BYTES : 0;
    if (wave == 0) {
      bulk_expect(barrier, P::BN * ROW_BYTES + P::NORM_ROWS * NORM_BYTES + (o.bias ? P::BN * 4 : 0));
      if (o.bias) bulk_copy(barrier, common_of(block).bias, o.bias + n0, P::BN * 4);
    }
    Element* to = weights_of(block, 0);
#pragma unroll
    for (int row = wave; row < P::BN; row += WAVES)
      bulk_copy(barrier, to + row * P::WHOLE_STRIDE, o.weights + (n0 + row) * P::K, ROW_BYTES);
    if constexpr (P::GROUP_ROWS > 0)
#pragma unroll
      for (int row = wave; row < P::NORM_ROWS; row += WAVES)
        bulk_copy(barrier, to + P::BN * P::WHOLE_STRIDE + row * P::WHOLE_NORM_STRIDE,
                  o.norms + (m0 + row) % P::GROUP_ROWS * 2 * P::K, NORM_BYTES);
    return;
  }
#pragma unroll
  for (int round = 0; round < P::SLOTS && round < P::ROUNDS; round++)
    if (takes_part<P>(round)) load_weights<P>(block, o.weights, n0, round);
  if constexpr (P::GROUP_ROWS > 0) {
    if (takes_part<P>(0)) {
      const int lane = thread_index() % WAVE;
#pragma unroll
      for (int index = lane; index < P::NORM_ROWS * (2 * P::KC / CHUNK); index += WAVE) {
        const int row = index / (2 * P::KC / CHUNK), column = index % (2 * P::KC / CHUNK) * CHUNK;
        const int at = 2 * wave * P::KC + column, in_group = (m0 + row) % P::GROUP_ROWS;
        copy_ahead(norms_of(block, wave) + row * P::NORMS_STRIDE + column, o.norms + in_group * 2 * P::K + at,
                   at < 2 * P::K);
      }
    }
  }
  if (o.bias && thread_index() < P::BN / 4)
    copy_ahead(common_of(block).bias + 4 * thread_index(), o.bias + n0 + 4 * thread_index(),
               P::EXACT_N || n0 + 4 * thread_index() < P::N);
  commit_ahead();
}

// Mean and scale of the groups that the rows from m0 on belong to, put together from their parts.
template <class P>
DEVICE void combine_statistics(Block& block, const Operands& o, int m0) {
  constexpr int LENGTH = P::GROUP_ROWS * P::K;
  const int wave = thread_index() / WAVE, lane = thread_index() % WAVE;
  const int last_row = m0 + P::BM < P::M ? m0 + P::BM - 1 : P::M - 1;
#pragma unroll 1
  for (int group = m0 / P::GROUP_ROWS; group <= last_row / P::GROUP_ROWS; group++) {
    constexpr int OWN = (P::PARTS + WAVE - 1) / WAVE;
    float mean[OWN], count[OWN], sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int i = 0; i < OWN; i++) {
      const int part = lane + i * WAVE, left = LENGTH - part * P::PART_WIDTH;
      const bool inside = P::PARTS % WAVE == 0 || part < P::PARTS;
      const float* pair = o.statistics + (group * P::PARTS + part) * 2;
      mean[i] = inside ? pair[0] : 0.0f;
      squares += inside ? pair[1] : 0.0f;
      count[i] = !inside ? 0.0f : (float)(left < P::PART_WIDTH ? left : P::PART_WIDTH);
      sum += mean[i] * count[i];
    }
    const float middle = wave_sum(sum) / LENGTH;
#pragma unroll
    for (int i = 0; i < OWN; i++) squares += (mean[i] - middle) * (mean[i] - middle) * count[i];
    squares = wave_sum(squares);
    if (lane == 0) {
      common_of(block).mean[wave][group] = middle;
      common_of(block).scale[wave][group] = reciprocal_sqrt(squares / LENGTH + o.epsilon);
    }
  }
  wave_sync();
}

// Normalises the wave's one chunk of inputs in shared memory.
template <class P>
DEVICE void normalise_inputs(Block& block, int m0) {
  constexpr int ROW_CHUNKS = P::KC / CHUNK, STEP = WAVE / ROW_CHUNKS;
  const int wave = thread_index() / WAVE, lane = thread_index() % WAVE, column = lane % ROW_CHUNKS * CHUNK;
  const Shared& common = common_of(block);
#pragma unroll 2
  for (int row = lane / ROW_CHUNKS; row < P::BM; row += STEP) {
    if (!P::EXACT_M && m0 + row >= P::M) break;
    const int group = (m0 + row) / P::GROUP_ROWS;
    Element* chunk = inputs_of(block, wave) + row * P::STRIDE + column;
    const int norm_row = P::NORM_ROWS == 1 ? 0 : row;
    const Element* whole = weights_of(block, 0) + P::BN * P::WHOLE_STRIDE + norm_row * P::WHOLE_NORM_STRIDE;
    const Element* norm = P::WHOLE ? whole + 2 * (wave * P::KC + column)
                                   : norms_of(block, wave) + norm_row * P::NORMS_STRIDE + 2 * column;
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

// One tile, whose `prefetch` has run. Everything that it reads of other blocks is complete.
template <class P>
DEVICE void multiply_and_finish(Block& block, const Operands& o, int tile) {
  const int wave = thread_index() / WAVE, m0 = tile / P::TILES_N * P::BM, n0 = tile % P::TILES_N * P::BN;
  constexpr int ROW_THREADS = P::BN / CHUNK;
  const int row = thread_index() / ROW_THREADS, column = thread_index() % ROW_THREADS * CHUNK;
  const bool inside = row < P::BM && (P::EXACT_M || m0 + row < P::M) && (P::EXACT_N || n0 + column < P::N);
  const int at = (m0 + row) * P::N + n0 + column;

#pragma unroll
  for (int round = 0; round < P::SLOTS; round++) {
    if (round < P::ROUNDS && takes_part<P>(round)) load_inputs<P>(block, o.a, m0, round);
    commit_ahead();
  }
  Bits128 skip{};  // asked for now, to be there when the sums are
  if (o.residual && inside) skip = *(const Bits128*)(o.residual + at);
  if constexpr (P::GROUP_ROWS > 0) combine_statistics<P>(block, o, m0);

  Accumulator c[P::BM / 16][P::BN / 16];
#pragma unroll
  for (int i = 0; i < P::BM / 16; i++)
#pragma unroll
    for (int j = 0; j < P::BN / 16; j++) clear(c[i][j]);
  if constexpr (P::WHOLE) {
    bulk_wait(common_of(block).barrier, block.parity);
    block.parity ^= 1;
  }
#pragma unroll 1
  for (int round = 0; round < P::ROUNDS; round++) {
    wave_loaded<P::SLOTS - 1>();
    if constexpr (P::GROUP_ROWS > 0) normalise_inputs<P>(block, m0);
    const int slot = P::ROUNDS <= P::SLOTS ? round : round % P::SLOTS;
    const Element* left = inputs_of(block, wave) + slot * P::A_SLOT;
    const Element* right = P::WHOLE ? weights_of(block, 0) + (wave + round * WAVES) * P::KC
                                    : weights_of(block, wave) + slot * P::B_SLOT;
    constexpr int RIGHT_STRIDE = P::WHOLE ? P::WHOLE_STRIDE : P::STRIDE;
    if (takes_part<P>(round)) {
      UNROLL_PRODUCTS
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
        }
      }
    }
    if constexpr (P::ROUNDS > P::SLOTS) {
      wave_sync();
      if (round + P::SLOTS < P::ROUNDS && takes_part<P>(round + P::SLOTS)) {
        load_inputs<P>(block, o.a, m0, round + P::SLOTS);
        if constexpr (!P::WHOLE) load_weights<P>(block, o.weights, n0, round + P::SLOTS);
      }
    }
    commit_ahead();
  }

  // Each wave's sums go where its inputs were, and every thread adds up a chunk.
  wave_sync();
  if (takes_part<P>(0)) {
    float* sums = (float*)inputs_of(block, wave);
#pragma unroll
    for (int i = 0; i < P::BM / 16; i++)
#pragma unroll
      for (int j = 0; j < P::BN / 16; j++)
#pragma unroll
        for (int e = 0; e < ACCUMULATORS; e++)
          sums[(16 * i + accumulator_row(e)) * P::SUM_STRIDE + 16 * j + accumulator_column(e)] =
              c[i][j].value[e];
  }
  block_sync();
  float x[CHUNK], other[CHUNK];
#pragma unroll
  for (int e = 0; e < CHUNK; e++) x[e] = 0.0f;
  if (inside) {
    if (o.bias) read_floats(x, common_of(block).bias + column);
    const float* sums = (const float*)inputs_of(block, 0) + row * P::SUM_STRIDE + column;
#pragma unroll
    for (int share = 0; share < P::SHARES; share++) {
      read_floats(other, sums + share * (A_BYTES / 4));
#pragma unroll
      for (int e = 0; e < CHUNK; e++) x[e] += other[e];
    }
    if (o.residual) {
      read_chunk(other, (const Element*)&skip);
#pragma unroll
      for (int e = 0; e < CHUNK; e++) x[e] += other[e];
    }
#pragma unroll
    for (int e = 0; e < CHUNK; e++) x[e] = activate<P::ACTIVATION>(x[e]);
    write_chunk(o.out + at, x);
  }
  if (o.made) {
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
      float* pair = o.made + ((m0 + row) * P::TILES_N + n0 / P::BN) * 2;
      pair[0] = mean;
      pair[1] = squares;
    }
  }
}
