// SPDX-License-Identifier: GPL-3.0-or-later
// Attention of one head over the 64 squares, by one block: out = softmax(q k^T + bias) v.
//
// source: the q of the head, 64 rows `row_stride` apart; k and v are `width` and 2 * width elements behind q.
// bias (BIAS): [64 queries][64 keys]. out: 64 rows `width` apart. DEPTH: of a head, a multiple of 16. ROUND
// (E4M3): out holds e4m3 numbers (e4m3.h), the results times round_scale.
//
// Four waves compute: each has 16 queries, whose 16 x 64 logits stay in its registers. All waves of the block
// load. Shared memory: q, k, v [64][DEPTH + CHUNK] and the bias [64][64 + CHUNK], 24 KB in fp16 at depth 32.
// SHARE_SPACE: for when that does not fit (float storage). After the logits are computed, v replaces k, and
// the softmax weights replace q. SLICE: a divisor of DEPTH. If it is less than DEPTH, which needs
// SHARE_SPACE, the depth is processed in slices: for heads so deep that neither shared memory nor registers
// hold them.
#pragma once
#include "matrix.h"
#if ROUND == E4M3
#include "e4m3.h"
#endif

constexpr float LOG2_E = 1.4426950408889634f;
// The largest softmax weight of a row, before division by their sum, is 2 to this power. In fp16 the
// significant weights are then not subnormal; gfx90a's matrix unit flushes subnormals to zero.
constexpr float LARGEST_EXPONENT = 14.0f;
constexpr int HEAD_STRIDE = SLICE + CHUNK;
constexpr int LOGITS_STRIDE = 64 + CHUNK;
constexpr int QUERIES_STRIDE = SHARE_SPACE && SLICE < 64 ? LOGITS_STRIDE : HEAD_STRIDE;

template <int LOADERS>
DEVICE void load_rows(Element* to, int stride, const Element* from, uint64 row_stride, int width) {
  int row_chunks = width / CHUNK;
  for (int index = thread_index(); index < 64 * row_chunks; index += LOADERS) {
    int row = index / row_chunks, column = index % row_chunks * CHUNK;
#if ASYNC_COPY
    copy_async(to + row * stride + column, from + row * row_stride + column, true);
#else
    copy_chunk(to + row * stride + column, from + row * row_stride + column);
#endif
  }
}
DEVICE void wait_for_rows() {
#if ASYNC_COPY
  copy_commit();
  copy_wait<0>();
#endif
  block_sync();
}

// Computes the softmax weights of 16 rows of 64 logits in place, up to a factor per row: the reciprocal of
// their sum, in `sum`.
DEVICE void softmax_rows(Accumulator (&s)[4], float (&sum)[ROW_SLOTS]) {
  float largest[ROW_SLOTS];
#pragma unroll
  for (int slot = 0; slot < ROW_SLOTS; slot++) {
    largest[slot] = -3.0e38f;
    sum[slot] = 0.0f;
  }
#pragma unroll
  for (int j = 0; j < 4; j++)
#pragma unroll
    for (int e = 0; e < ACCUMULATORS; e++)
      largest[row_slot(e)] = maximum(largest[row_slot(e)], s[j].value[e]);
#pragma unroll
  for (int slot = 0; slot < ROW_SLOTS; slot++)
    largest[slot] = row_max(largest[slot]) * LOG2_E - LARGEST_EXPONENT;
#pragma unroll
  for (int j = 0; j < 4; j++)
#pragma unroll
    for (int e = 0; e < ACCUMULATORS; e++) {
      s[j].value[e] = exp2_fast(s[j].value[e] * LOG2_E - largest[row_slot(e)]);
      sum[row_slot(e)] += s[j].value[e];
    }
#pragma unroll
  for (int slot = 0; slot < ROW_SLOTS; slot++) sum[slot] = divide_fast(1.0f, row_sum(sum[slot]));
}

template <int BLOCK_WAVES>
DEVICE void attend(char* shared, const Element* source, int row_stride, int width, const Element* bias,
                   Element* out, float round_scale) {
  constexpr int LOADERS = BLOCK_WAVES * WAVE;
  // The first query of the wave. Waves beyond the fourth repeat the first one's work, and write nothing.
  const bool computes = BLOCK_WAVES == 4 || thread_index() < 4 * WAVE;
  const int first = computes ? thread_index() / WAVE * 16 : 0;
  Element* q = (Element*)shared;
  Element* k = q + 64 * QUERIES_STRIDE;
  Element* v = SHARE_SPACE ? k : k + 64 * HEAD_STRIDE;
  Element* logits = SHARE_SPACE ? q : v + 64 * HEAD_STRIDE;

  Accumulator s[4];
#pragma unroll
  for (int j = 0; j < 4; j++) {
    clear(s[j]);
#if BIAS && SHARE_SPACE
    const Element* from = bias + first * 64 + 16 * j;
#pragma unroll
    for (int e = 0; e < ACCUMULATORS; e++)
      s[j].value[e] = to_float(from[accumulator_row(e) * 64 + accumulator_column(e)]);
#endif
  }
  for (int slice = 0; slice < DEPTH; slice += SLICE) {
    if (slice > 0) block_sync();
    load_rows<LOADERS>(q, QUERIES_STRIDE, source + slice, row_stride, SLICE);
    load_rows<LOADERS>(k, HEAD_STRIDE, source + width + slice, row_stride, SLICE);
#if !SHARE_SPACE
    load_rows<LOADERS>(v, HEAD_STRIDE, source + 2 * width, row_stride, SLICE);
#if BIAS
    load_rows<LOADERS>(logits, LOGITS_STRIDE, bias, 64, 64);
#endif
#endif
    wait_for_rows();
#if BIAS && !SHARE_SPACE
#pragma unroll
    for (int j = 0; j < 4; j++)
      s[j] = load_accumulator(logits + first * LOGITS_STRIDE + 16 * j, LOGITS_STRIDE);
#endif
    UNROLL_PRODUCTS
    for (int depth = 0; depth < SLICE; depth += 16) {
      FragmentA a = load_a(q + first * QUERIES_STRIDE + depth, QUERIES_STRIDE);
#pragma unroll
      for (int j = 0; j < 4; j++) multiply(s[j], a, load_b(k + j * 16 * HEAD_STRIDE + depth, HEAD_STRIDE));
    }
  }
#if SHARE_SPACE
  block_sync();
  load_rows<LOADERS>(v, HEAD_STRIDE, source + 2 * width, row_stride, SLICE);
#endif

  float sum[ROW_SLOTS];
  softmax_rows(s, sum);
#if !ACCUMULATOR_IS_A
  if (computes)
#pragma unroll
    for (int j = 0; j < 4; j++)
      store_accumulator(logits + first * LOGITS_STRIDE + 16 * j, LOGITS_STRIDE, s[j]);
#endif
#if SHARE_SPACE
  wait_for_rows();
#elif !ACCUMULATOR_IS_A
  block_sync();
#endif

  for (int slice = 0; slice < DEPTH; slice += SLICE) {
    if (slice > 0) {
      block_sync();
      load_rows<LOADERS>(v, HEAD_STRIDE, source + 2 * width + slice, row_stride, SLICE);
      wait_for_rows();
    }
    Accumulator o[SLICE / 16];
#pragma unroll
    for (int j = 0; j < SLICE / 16; j++) clear(o[j]);
    UNROLL_PRODUCTS
    for (int key = 0; key < 64; key += 16) {
#if ACCUMULATOR_IS_A
      FragmentA a = fragment_of(s[key / 16]);
#else
      FragmentA a = load_a(logits + first * LOGITS_STRIDE + key, LOGITS_STRIDE);
#endif
#pragma unroll
      for (int j = 0; j < SLICE / 16; j++)
        multiply(o[j], a, load_b_transposed(v + key * HEAD_STRIDE + j * 16, HEAD_STRIDE));
    }

    // The result replaces q, or k if the softmax weights have replaced q.
    block_sync();
    Element* result = SHARE_SPACE ? k : q;
#pragma unroll
    for (int j = 0; j < SLICE / 16; j++) {
#pragma unroll
      for (int e = 0; e < ACCUMULATORS; e++) o[j].value[e] *= sum[row_slot(e)];
      if (computes) store_accumulator(result + first * HEAD_STRIDE + 16 * j, HEAD_STRIDE, o[j]);
    }
    block_sync();
    for (int index = thread_index(); index < 64 * (SLICE / CHUNK); index += LOADERS) {
      int row = index / (SLICE / CHUNK), column = index % (SLICE / CHUNK) * CHUNK;
      const Element* chunk = result + row * HEAD_STRIDE + column;
#if ROUND == E4M3
      float x[CHUNK];
      read_chunk(x, chunk);
      *(Bits64*)((char*)out + (uint64)row * width + slice + column) = e4m3_chunk(x, round_scale);
#else
      copy_chunk(out + (uint64)row * width + slice + column, chunk);
#endif
    }
  }
}
