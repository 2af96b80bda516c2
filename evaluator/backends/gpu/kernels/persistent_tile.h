// SPDX-License-Identifier: GPL-3.0-or-later
// A tile of a product in persistent.hip: its shape, its operands, and the layout of shared memory.
#pragma once
#include "activation.h"
#include "bulk.h"
#include "grid.h"
#include "matrix.h"

constexpr int WAVES = 8;
constexpr int THREADS = WAVES * WAVE;
constexpr int MAX_GROUPS = 8;
constexpr int MAX_BN = 64;
constexpr int SUM_PADDING = 8;

// Vectors over the columns of a tile; see Operands.
struct ColumnVectors {
  float bias[MAX_BN], factors[MAX_BN], offsets[MAX_BN];
};
struct CommonShared {
  uint64 barrier[2];         // for the weights; for free space in both blocks of a pair
  Element ones[32];          // 16 suffice for any matrix unit
  ColumnVectors vectors[2];  // of this tile and, during its epilogue, of the next one
  float mean[WAVES][MAX_GROUPS], scale[WAVES][MAX_GROUPS];
};

// The block's shared memory: a space for weights and one for inputs of each wave, then CommonShared. During
// an epilogue and in attention the inputs' space of all waves belongs to the whole block.
struct Block {
  char* shared;
  uint32 parity;  // of the next round of the weights' barrier (bulk.h)
#if PAIRS
  uint32 free_parity;  // of this round of the other barrier
#endif
  int vector_buffer;  // filled by the last prefetch
};
DEVICE Element* weights_space(Block& block, int wave) {
  return (Element*)(block.shared + wave * B_BYTES);
}
DEVICE Element* inputs_space(Block& block, int wave) {
  return (Element*)(block.shared + WAVES * B_BYTES + wave * A_BYTES);
}
DEVICE Element* norms_space(Block& block, int wave) {
  return (Element*)(block.shared + WAVES * B_BYTES + wave * A_BYTES + A_BYTES / 2);
}
DEVICE CommonShared& common_shared(Block& block) {
  return *(CommonShared*)(block.shared + WAVES * (A_BYTES + B_BYTES));
}

// Copies 16 bytes, asynchronously if the hardware supports it; zeros if not `valid`.
DEVICE void load_chunk(void* to, const void* from, bool valid) {
#if ASYNC_COPY
  copy_async(to, from, valid);
#else
  if (valid)
    copy_chunk((Element*)to, (const Element*)from);
  else
    zero_chunk((Element*)to);
#endif
}
DEVICE void commit_loads() {
#if ASYNC_COPY
  copy_commit();
#endif
}
// Waits until all but the last PENDING groups of loads have arrived, for the whole wave.
template <int PENDING>
DEVICE void wait_for_loads() {
#if ASYNC_COPY
  copy_wait<PENDING>();
#endif
  wave_sync();
}

// out[m][n] = activation(a[m][k] weights[n][k]^T + bias + residual), in tiles of BM x BN.
//
// GROUP_ROWS: if not 0, this many rows of a are one vector, which is normalised first, by statistics of its
// PARTS parts of PART_WIDTH elements from the previous product.
//
// ROW_NORM: a layer norm of single rows, without a phase of its own.
//   OF_INPUTS: a is multiplied unnormalised by weights w' that include the gammas, and the epilogue corrects
//     the sums: norm(a) w = (a w' - mean sum(w')) / deviation + betas w. The last term is part of the bias.
//     Two more products by the matrix unit give mean and standard deviation: the sum of a row is a times
//     ones, its sum of squares the diagonal of a a^T. They are stored for OF_RESIDUAL.
//   OF_RESIDUAL: the residual is normalised when it is added.
enum RowNorm { NO_ROW_NORM, OF_INPUTS, OF_RESIDUAL };

template <int M_, int N_, int K_, int BM_, int BN_, int ACTIVATION_ = ACTIVATION_NONE,
          RowNorm ROW_NORM_ = NO_ROW_NORM, int GROUP_ROWS_ = 0, int PARTS_ = 0, int PART_WIDTH_ = 0>
struct Product {
  static constexpr int M = M_, N = N_, K = K_, BM = BM_, BN = BN_, ACTIVATION = ACTIVATION_;
  static constexpr RowNorm ROW_NORM = ROW_NORM_;
  static constexpr int GROUP_ROWS = GROUP_ROWS_, PARTS = PARTS_, PART_WIDTH = PART_WIDTH_;
  static constexpr int TILES_N = (N + BN - 1) / BN, TILES = (M + BM - 1) / BM * TILES_N;
  // Chunks of k. 64 is used only if every wave then gets equally many.
  static constexpr int KC = MAX_KC == 64 && K % (64 * WAVES) == 0 ? 64 : 32;
  static constexpr int CHUNKS = (K + KC - 1) / KC, K_SLICES = CHUNKS < WAVES ? CHUNKS : WAVES;
  static constexpr int STRIDE = KC + CHUNK, A_SLOT = BM * STRIDE, B_SLOT = BN * STRIDE;
  static constexpr int NORMS_STRIDE = 2 * KC + CHUNK, SUM_STRIDE = BN + SUM_PADDING;
  static constexpr int A_SLOTS = A_BYTES / (GROUP_ROWS ? 2 : 1) / (A_SLOT * (int)sizeof(Element));
  static constexpr int B_SLOTS = B_BYTES / (B_SLOT * (int)sizeof(Element));
  static constexpr bool EXACT_M = M % BM == 0, EXACT_N = N % BN == 0, EXACT_K = K % KC == 0;
  // BULK: the TMA loads all weights of a tile at once, as rows of K that the waves share.
  static constexpr int BULK_STRIDE = K + CHUNK;
  // Distance of rows of weights in memory. With PAIRS a tile's rows are one copy of the TMA.
  static constexpr int WEIGHTS_STRIDE = PAIRS ? BULK_STRIDE : K;
  // A norm of single rows has one row of gammas and betas, loaded once: 16 loads of it by every block made a
  // hot spot.
  static constexpr int NORM_ROWS = GROUP_ROWS < BM ? GROUP_ROWS == 1 ? 1 : GROUP_ROWS ? BM : 0 : BM;
  static constexpr int BULK_NORM_STRIDE = 2 * K + CHUNK, BULK_NORMS = NORM_ROWS * BULK_NORM_STRIDE;
  static constexpr bool BULK = BULK_COPY && EXACT_N && EXACT_K &&
                               (BN * BULK_STRIDE + BULK_NORMS) * (int)sizeof(Element) <= WAVES * B_BYTES;
  // With PAIRS, clusters of two blocks have the same columns and neighbouring rows, and each loads half of
  // the weights into both.
  static constexpr bool PAIRED = PAIRS && BULK && TILES / TILES_N % 2 == 0;
  static constexpr int SLOTS = BULK || A_SLOTS < B_SLOTS ? A_SLOTS : B_SLOTS;
  static constexpr int ROUNDS = (CHUNKS + WAVES - 1) / WAVES;
  static_assert(SLOTS > 0 && BM * SUM_STRIDE * 4 <= A_BYTES, "shared memory is too small for this tile");
  static_assert(!GROUP_ROWS || (ROUNDS == 1 && BM * NORMS_STRIDE * (int)sizeof(Element) <= A_BYTES / 2), "");
  static_assert(BM * BN / CHUNK <= THREADS && BN <= MAX_BN, "a thread finishes one chunk at most");
};

// The first row and column of a tile.
template <class P>
DEVICE int tile_row(int tile) {
  if constexpr (P::PAIRED) return (tile / 2 / P::TILES_N * 2 + tile % 2) * P::BM;
  return tile / P::TILES_N * P::BM;
}
template <class P>
DEVICE int tile_column(int tile) {
  if constexpr (P::PAIRED) return tile / 2 % P::TILES_N * P::BN;
  return tile % P::TILES_N * P::BN;
}

// Pointers are null for operands that a product does not have. norms: gammas and betas in alternating chunks.
// statistics (of a) and statistics_out (of out): [rows or groups][parts] pairs of a mean and the sum of
// squared deviations from it. For ROW_NORM: factors, the sums of the rows of weights (OF_INPUTS) or the
// gammas (OF_RESIDUAL); offsets, the betas; row_norms, pairs of a row's mean and scale, written by OF_INPUTS
// and read by OF_RESIDUAL.
struct Operands {
  const Element* a;
  const Element* weights;
  const float* bias;
  Element* out;
  const Element* residual = nullptr;
  float epsilon = 0.0f;
  const Element* norms = nullptr;
  const float* statistics = nullptr;
  float* statistics_out = nullptr;
  const float* factors = nullptr;
  const float* offsets = nullptr;
  float* row_norms = nullptr;
};
