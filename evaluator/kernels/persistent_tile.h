// What a tile of a product is to persistent.hip: its shape, its operands, and where things lie in shared
// memory.
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

// What a tile needs of each of its columns; see Operands.
struct Vectors {
  float bias[MAX_BN], factors[MAX_BN], offsets[MAX_BN];
};
struct Shared {
  uint64 barrier[2];   // of the weights; the second only keeps what follows aligned
  Element ones[32];    // 16 are enough for any matrix unit
  Vectors vectors[2];  // of this tile and, while it is finished, of the next one
  float mean[WAVES][MAX_GROUPS], scale[WAVES][MAX_GROUPS];
};

// Where things lie in shared memory. The weights' space is a wave's own; that of the inputs belongs to the
// whole block while a tile is finished and in an attention.
struct Block {
  char* shared;
  uint32 parity;  // of the next round of the weights' barrier
  int set;        // of the vectors asked for last
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
//
// ROW_NORM: a layer norm of single rows, for which no phase of its own is needed.
//   OF_INPUTS: a is multiplied as it is by weights that have the gammas in them, and the sums are put right
//   at
//     the end: norm(a) w = (a w' - mean sum(w')) / deviation + betas w, the last being part of the bias. Two
//     more products by the matrix unit give mean and deviation: a row's sum is a times ones, its sum of
//     squares the diagonal of a a^T. They are left for
//   OF_RESIDUAL: the residual is normalised when it is added.
enum RowNorm { NO_ROW_NORM, OF_INPUTS, OF_RESIDUAL };

template <int M_, int N_, int K_, int BM_, int BN_, int ACTIVATION_ = ACTIVATION_NONE,
          RowNorm ROW_NORM_ = NO_ROW_NORM, int GROUP_ROWS_ = 0, int PARTS_ = 0, int PART_WIDTH_ = 0>
struct Product {
  static constexpr int M = M_, N = N_, K = K_, BM = BM_, BN = BN_, ACTIVATION = ACTIVATION_;
  static constexpr RowNorm ROW_NORM = ROW_NORM_;
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
// and made: [rows or groups][parts] pairs of a mean and the sum of squared differences from it. Of ROW_NORM:
// factors, the sums of the weights' rows or the gammas; offsets, the betas; rows, pairs of a mean and what
// its row is divided by, written with the inputs' norm and read with the residual's.
struct Operands {
  const Element* a;
  const Element* weights;
  const float* bias;
  Element* out;
  const Element* residual = nullptr;
  float epsilon = 0.0f;
  const Element* norms = nullptr;
  const float* statistics = nullptr;
  float* made = nullptr;
  const float* factors = nullptr;
  const float* offsets = nullptr;
  float* rows = nullptr;
};
