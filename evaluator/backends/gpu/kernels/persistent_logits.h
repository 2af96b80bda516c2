// SPDX-License-Identifier: GPL-3.0-or-later
// Smolgen's logits and attention in one phase for persistent.hip (LOGITS_IN_ATTENTION), instead of two.
//
// A tile is QUERIES queries and HEADS_OF_TILE heads of one position. It computes their logits itself, from
// the QUERIES * 64 rows of the weights that belong to its queries, and then attends. So the logits never
// leave the block, and all blocks attend, not one per head. The price: blocks with other heads of the same
// queries read the same weights (BT4: 64 KB per block, loaded while the phase before ends), and blocks with
// other queries the same keys and values (64 KB).
//
// Shared memory: in the weights' space the logits' weights, gammas and betas of the heads' vectors, and the
// vectors; in the inputs' space keys, values, queries and logits of all heads of the tile.
#pragma once
#include "persistent_product.h"

constexpr int HEAD_GROUPS = (HEADS + HEADS_OF_TILE - 1) / HEADS_OF_TILE, QUERY_GROUPS = 64 / QUERIES;
constexpr int VECTOR_STRIDE = GENERATED + CHUNK, KEYS_STRIDE = DEPTH + CHUNK, LOGITS_OF_HEAD = 64 + 4;
constexpr int SLICE_ROWS = QUERIES * 64, SLICE_OF_WEIGHTS = SLICE_ROWS * VECTOR_STRIDE;
constexpr int VECTOR_NORMS = HEADS_OF_TILE * 2 * GENERATED;
static_assert(GENERATED % 16 == 0 && HEADS_OF_TILE <= 16 && QUERIES <= 16 && 64 % QUERIES == 0, "");
static_assert((SLICE_OF_WEIGHTS + VECTOR_NORMS + 16 * VECTOR_STRIDE) * (int)sizeof(Element) <=
                  WAVES * B_BYTES,
              "");
constexpr int KEYS_ELEMENTS = HEADS_OF_TILE * 64 * KEYS_STRIDE;
constexpr int QUERIES_ELEMENTS = (HEADS_OF_TILE * QUERIES + 16) * KEYS_STRIDE;
static_assert((2 * KEYS_ELEMENTS + QUERIES_ELEMENTS) * (int)sizeof(Element) +
                      HEADS_OF_TILE * QUERIES * LOGITS_OF_HEAD * 4 <=
                  WAVES * A_BYTES,
              "");
// If the softmax weights of a head go through shared memory, they replace its keys.
constexpr int SHARES_STRIDE = 64 + CHUNK;
static_assert(ACCUMULATOR_IS_A || 16 * SHARES_STRIDE <= 64 * KEYS_STRIDE, "");

// The properties that run_tiles needs of a product whose weights come next.
struct LogitsTile {
  static constexpr bool BULK = BULK_COPY;
  static constexpr int GROUP_ROWS = 0, TILES = POSITIONS * QUERY_GROUPS * HEAD_GROUPS;
};
struct LogitsOperands {
  const Element* weights;  // [4096][VECTOR_STRIDE]
  const Element* norms;    // gammas and betas in alternating chunks
  const Element* vectors;  // [POSITIONS][HEADS][GENERATED]
  const float* statistics;
  float epsilon;
  const Element* qkv;  // [POSITIONS * 64][3 * HEADS * DEPTH]
  Element* mixed;      // [POSITIONS * 64][HEADS * DEPTH]
};

DEVICE int first_head(int tile) {
  return tile % HEAD_GROUPS * HEADS_OF_TILE;
}
DEVICE int heads_of(int tile) {
  return HEADS % HEADS_OF_TILE == 0 || first_head(tile) + HEADS_OF_TILE <= HEADS ? HEADS_OF_TILE
                                                                                 : HEADS % HEADS_OF_TILE;
}
DEVICE int first_query(int tile) {
  return tile / HEAD_GROUPS % QUERY_GROUPS * QUERIES;
}

// Starts loading the weights and norms of a tile, by the waves from `from` on.
DEVICE void prefetch_logits(Block& block, const LogitsOperands& o, int tile, int from) {
  if (tile >= LogitsTile::TILES) return;
  Element* slice = weights_space(block, 0);
  Element* norms = slice + SLICE_OF_WEIGHTS;
  const Element* of_slice = o.weights + first_query(tile) * 64 * VECTOR_STRIDE;
  const Element* of_norms = o.norms + first_head(tile) * 2 * GENERATED;
  const int count = heads_of(tile) * 2 * GENERATED;
  if constexpr (BULK_COPY) {
    if (thread_index() != from * WAVE) return;
    uint64* barrier = common_shared(block).barrier;
    bulk_expect(barrier, (SLICE_OF_WEIGHTS + count) * (int)sizeof(Element));
    bulk_copy(barrier, slice, of_slice, SLICE_OF_WEIGHTS * (int)sizeof(Element));
    bulk_copy(barrier, norms, of_norms, count * (int)sizeof(Element));
  } else {
    for (int at = thread_index() * CHUNK; at < SLICE_OF_WEIGHTS; at += THREADS * CHUNK)
      load_chunk(slice + at, of_slice + at, true);
    for (int at = thread_index() * CHUNK; at < count; at += THREADS * CHUNK)
      load_chunk(norms + at, of_norms + at, true);
    commit_loads();
  }
}

// Loads keys, values and queries of the tile's heads.
DEVICE void load_heads(Block& block, const LogitsOperands& o, int position, int tile) {
  constexpr int ROW_CHUNKS = DEPTH / CHUNK, MODEL_WIDTH = HEADS * DEPTH;
  Element* keys = inputs_space(block, 0);
  Element* queries = keys + 2 * KEYS_ELEMENTS;
  const int heads = heads_of(tile);
  const Element* from = o.qkv + position * 64 * 3 * MODEL_WIDTH + first_head(tile) * DEPTH;
#pragma unroll 4
  for (int index = thread_index(); index < 2 * HEADS_OF_TILE * 64 * ROW_CHUNKS; index += THREADS) {
    const int column = index % ROW_CHUNKS * CHUNK, row = index / ROW_CHUNKS % 64;
    const int head = index / (64 * ROW_CHUNKS) % HEADS_OF_TILE,
              which = index / (HEADS_OF_TILE * 64 * ROW_CHUNKS);
    if (head < heads)
      load_chunk(keys + which * KEYS_ELEMENTS + (head * 64 + row) * KEYS_STRIDE + column,
                 from + row * 3 * MODEL_WIDTH + (1 + which) * MODEL_WIDTH + head * DEPTH + column, true);
  }
  for (int index = thread_index(); index < HEADS_OF_TILE * QUERIES * ROW_CHUNKS; index += THREADS) {
    const int column = index % ROW_CHUNKS * CHUNK, row = index / ROW_CHUNKS % QUERIES;
    const int head = index / (QUERIES * ROW_CHUNKS);
    if (head < heads)
      load_chunk(queries + (head * QUERIES + row) * KEYS_STRIDE + column,
                 from + (first_query(tile) + row) * 3 * MODEL_WIDTH + head * DEPTH + column, true);
  }
  commit_loads();
}

// Makes the heads' normalised vectors, after gammas and betas have arrived. P: the product whose shape
// determines how statistics are combined.
template <class P>
DEVICE void make_vectors(Block& block, const LogitsOperands& o, int position, int tile) {
  Operands statistics = {};
  statistics.statistics = o.statistics;
  statistics.epsilon = o.epsilon;
  combine_statistics<P>(block, statistics, position * HEADS);
  const int wave = thread_index() / WAVE;
  const float mean = common_shared(block).mean[wave][position],
              scale = common_shared(block).scale[wave][position];
  const Element* norms = weights_space(block, 0) + SLICE_OF_WEIGHTS;
  Element* vectors = weights_space(block, 0) + SLICE_OF_WEIGHTS + VECTOR_NORMS;
  const Element* from = o.vectors + (position * HEADS + first_head(tile)) * GENERATED;
  for (int at = thread_index() * CHUNK; at < heads_of(tile) * GENERATED; at += THREADS * CHUNK) {
    float x[CHUNK], factor[CHUNK], offset[CHUNK];
    read_chunk(x, from + at);
    read_chunk(factor, norms + 2 * at);
    read_chunk(offset, norms + 2 * at + CHUNK);
#pragma unroll
    for (int e = 0; e < CHUNK; e++) x[e] = (x[e] - mean) * scale * factor[e] + offset[e];
    write_chunk(vectors + at / GENERATED * VECTOR_STRIDE + at % GENERATED, x);
  }
}

// Writes logits[head][query][key] of the tile to shared memory.
DEVICE void make_logits(Block& block, float* logits) {
  const Element* slice = weights_space(block, 0);
  const Element* vectors = slice + SLICE_OF_WEIGHTS + VECTOR_NORMS;
  for (int j = thread_index() / WAVE; j < SLICE_ROWS / 16; j += WAVES) {
    Accumulator c;
    clear(c);
#pragma unroll 4
    for (int k = 0; k < GENERATED; k += 16)
      multiply(c, load_a(vectors + k, VECTOR_STRIDE),
               load_b(slice + j * 16 * VECTOR_STRIDE + k, VECTOR_STRIDE));
#pragma unroll
    for (int e = 0; e < ACCUMULATORS; e++) {
      const int head = accumulator_row(e), at = 16 * j + accumulator_column(e);
      if (head < HEADS_OF_TILE) logits[(head * QUERIES + at / 64) * LOGITS_OF_HEAD + at % 64] = c.value[e];
    }
  }
}

// out = softmax(q k^T + logits) v of one head of the tile, by one wave, like `attend` of attention.h. Rows
// beyond QUERIES are computed from arbitrary data, and not stored.
DEVICE void attend_head(Block& block, const float* logits, int head, Element* out) {
  Element* keys = inputs_space(block, 0) + head * 64 * KEYS_STRIDE;
  const Element* values = keys + KEYS_ELEMENTS;
  const Element* queries = inputs_space(block, 0) + 2 * KEYS_ELEMENTS + head * QUERIES * KEYS_STRIDE;
  Accumulator s[4];
#pragma unroll
  for (int j = 0; j < 4; j++)
#pragma unroll
    for (int e = 0; e < ACCUMULATORS; e++) {
      const int row = accumulator_row(e);
      s[j].value[e] = row < QUERIES
                          ? logits[(head * QUERIES + row) * LOGITS_OF_HEAD + 16 * j + accumulator_column(e)]
                          : 0.0f;
    }
#pragma unroll
  for (int depth = 0; depth < DEPTH; depth += 16) {
    const FragmentA a = load_a(queries + depth, KEYS_STRIDE);
#pragma unroll
    for (int j = 0; j < 4; j++) multiply(s[j], a, load_b(keys + j * 16 * KEYS_STRIDE + depth, KEYS_STRIDE));
  }
  float sum[ROW_SLOTS];
  softmax_rows(s, sum);
#if !ACCUMULATOR_IS_A
  wave_sync();
#pragma unroll
  for (int j = 0; j < 4; j++) store_accumulator(keys + 16 * j, SHARES_STRIDE, s[j]);
  wave_sync();
#endif
  Accumulator o[DEPTH / 16];
#pragma unroll
  for (int j = 0; j < DEPTH / 16; j++) clear(o[j]);
#pragma unroll
  for (int key = 0; key < 64; key += 16) {
#if ACCUMULATOR_IS_A
    const FragmentA a = fragment_of(s[key / 16]);
#else
    const FragmentA a = load_a(keys + key, SHARES_STRIDE);
#endif
#pragma unroll
    for (int j = 0; j < DEPTH / 16; j++)
      multiply(o[j], a, load_b_transposed(values + key * KEYS_STRIDE + j * 16, KEYS_STRIDE));
  }
#pragma unroll
  for (int j = 0; j < DEPTH / 16; j++)
#pragma unroll
    for (int e = 0; e < ACCUMULATORS; e++)
      if (accumulator_row(e) < QUERIES)
        out[accumulator_row(e) * HEADS * DEPTH + 16 * j + accumulator_column(e)] =
            to_element(o[j].value[e] * sum[row_slot(e)]);
}

// Runs one tile after its `prefetch_logits`. Queries, keys, values and vectors must be complete. next:
// prefetches the next weights.
template <class P, class Next>
DEVICE void attend_with_logits(Block& block, const LogitsOperands& o, int tile, Next next) {
  const int position = tile / (QUERY_GROUPS * HEAD_GROUPS), wave = thread_index() / WAVE;
  float* logits = (float*)(inputs_space(block, 0) + 2 * KEYS_ELEMENTS + QUERIES_ELEMENTS);
  load_heads(block, o, position, tile);
  if constexpr (BULK_COPY) {
    bulk_wait(common_shared(block).barrier, block.parity);
    block.parity ^= 1;
  } else {
    wait_for_loads<0>();
    block_sync();
  }
  make_vectors<P>(block, o, position, tile);
  block_sync();
  make_logits(block, logits);
  wait_for_loads<0>();
  bulk_fence();  // the next weights may be copied over the vectors
  block_sync();
  // The waves without a head of their own prefetch, if there are any.
  next(HEADS_OF_TILE < WAVES ? HEADS_OF_TILE : 0);
  for (int head = wave; head < heads_of(tile); head += WAVES)
    attend_head(
        block, logits, head,
        o.mixed + (position * 64 + first_query(tile)) * HEADS * DEPTH + (first_head(tile) + head) * DEPTH);
}
