// Multi-head attention over the 64 squares: out = softmax(q k^T + bias) v, one block per head and position.
//
// qkv: [positions * 64][row_stride], of which q, k, v side by side take 3 * heads * DEPTH, each head padded
// with zeros to DEPTH (a multiple of 16); 1/sqrt(depth) is in the weights of q. bias (BIAS): the smolgen
// logits [positions][heads][64 queries][64 keys]. out: [positions * 64][heads * DEPTH].
//
// Grid: (heads, positions), 4 waves; a wave owns 16 queries, whose 16 x 64 logits stay in its registers.
// Shared memory: q, k, v [64][DEPTH + CHUNK] and the bias [64][64 + CHUNK], 24 KB in fp16 at depth 32, so
// that nine blocks share a multiprocessor of 228 KB: the kernel is bound by moving qkv, bias and out once
// (BT4, batch 256: 0.2 GB, 47 us at 4.3 TB/s), and many blocks in flight are what keeps memory busy.
// SHARE_SPACE: where that does not fit (float storage), v comes into k's space after the logits, and the
// weights of the keys into q's. SLICE: a divisor of DEPTH; if less than DEPTH, which takes SHARE_SPACE, the
// depth is worked through in slices, for heads so deep that neither shared memory nor registers hold them.
#include "matrix.h"

constexpr float LOG2_E = 1.4426950408889634f;
constexpr int THREADS = 4 * WAVE;
constexpr int STRIDE = SLICE + CHUNK;
constexpr int LOGITS_STRIDE = 64 + CHUNK;
constexpr int QUERIES_STRIDE = SHARE_SPACE && SLICE < 64 ? LOGITS_STRIDE : STRIDE;

DEVICE void load_rows(Element* to, int stride, const Element* from, uint64 row_stride, int width) {
  int row_chunks = width / CHUNK;
  for (int index = thread_index(); index < 64 * row_chunks; index += THREADS) {
    int row = index / row_chunks, column = index % row_chunks * CHUNK;
#if ASYNC_COPY
    copy_async(to + row * stride + column, from + row * row_stride + column, true);
#else
    copy_chunk(to + row * stride + column, from + row * row_stride + column);
#endif
  }
}
DEVICE void rows_loaded() {
#if ASYNC_COPY
  copy_commit();
  copy_wait<0>();
#endif
  block_sync();
}

KERNEL(attention, THREADS)(const Element* qkv, const Element* bias, Element* out, int heads, int row_stride) {
  DYNAMIC_SHARED(shared);
  const int head = block_x(), position = block_y();
  const int first = thread_index() / WAVE * 16;  // the wave's first query
  const int width = heads * DEPTH;
  const Element* source = qkv + (uint64)position * 64 * row_stride + head * DEPTH;

  Element* q = (Element*)shared;
  Element* k = q + 64 * QUERIES_STRIDE;
  Element* v = SHARE_SPACE ? k : k + 64 * STRIDE;
  Element* logits = SHARE_SPACE ? q : v + 64 * STRIDE;
  start_kernel();
  wait_for_previous_kernel();

  Accumulator s[4];
#pragma unroll
  for (int j = 0; j < 4; j++) {
    clear(s[j]);
#if BIAS && SHARE_SPACE
    const Element* from = bias + (((uint64)position * heads + head) * 64 + first) * 64 + 16 * j;
#pragma unroll
    for (int e = 0; e < ACCUMULATORS; e++)
      s[j].value[e] = to_float(from[accumulator_row(e) * 64 + accumulator_column(e)]);
#endif
  }
  for (int slice = 0; slice < DEPTH; slice += SLICE) {
    if (slice > 0) block_sync();
    load_rows(q, QUERIES_STRIDE, source + slice, row_stride, SLICE);
    load_rows(k, STRIDE, source + width + slice, row_stride, SLICE);
#if !SHARE_SPACE
    load_rows(v, STRIDE, source + 2 * width, row_stride, SLICE);
#if BIAS
    load_rows(logits, LOGITS_STRIDE, bias + ((uint64)position * heads + head) * 4096, 64, 64);
#endif
#endif
    rows_loaded();
#if BIAS && !SHARE_SPACE
#pragma unroll
    for (int j = 0; j < 4; j++)
      s[j] = load_accumulator(logits + first * LOGITS_STRIDE + 16 * j, LOGITS_STRIDE);
#endif
    UNROLL_PRODUCTS
    for (int depth = 0; depth < SLICE; depth += 16) {
      FragmentA a = load_a(q + first * QUERIES_STRIDE + depth, QUERIES_STRIDE);
#pragma unroll
      for (int j = 0; j < 4; j++) multiply(s[j], a, load_b(k + j * 16 * STRIDE + depth, STRIDE));
    }
  }
#if SHARE_SPACE
  block_sync();
  load_rows(v, STRIDE, source + 2 * width, row_stride, SLICE);
#endif

  float largest[ROW_SLOTS], sum[ROW_SLOTS];
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
  for (int slot = 0; slot < ROW_SLOTS; slot++) largest[slot] = row_max(largest[slot]) * LOG2_E;
#pragma unroll
  for (int j = 0; j < 4; j++)
#pragma unroll
    for (int e = 0; e < ACCUMULATORS; e++) {
      s[j].value[e] = exp2_fast(s[j].value[e] * LOG2_E - largest[row_slot(e)]);
      sum[row_slot(e)] += s[j].value[e];
    }
#pragma unroll
  for (int slot = 0; slot < ROW_SLOTS; slot++) sum[slot] = divide_fast(1.0f, row_sum(sum[slot]));
#if !ACCUMULATOR_IS_A
#pragma unroll
  for (int j = 0; j < 4; j++) store_accumulator(logits + first * LOGITS_STRIDE + 16 * j, LOGITS_STRIDE, s[j]);
#endif
#if SHARE_SPACE
  rows_loaded();
#elif !ACCUMULATOR_IS_A
  block_sync();
#endif

  for (int slice = 0; slice < DEPTH; slice += SLICE) {
    if (slice > 0) {
      block_sync();
      load_rows(v, STRIDE, source + 2 * width + slice, row_stride, SLICE);
      rows_loaded();
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
        multiply(o[j], a, load_b_transposed(v + key * STRIDE + j * 16, STRIDE));
    }

    // q's rows (k's, where the weights of the keys lie in q's) are read by nobody any more.
    block_sync();
    Element* result = SHARE_SPACE ? k : q;
#pragma unroll
    for (int j = 0; j < SLICE / 16; j++) {
#pragma unroll
      for (int e = 0; e < ACCUMULATORS; e++) o[j].value[e] *= sum[row_slot(e)];
      store_accumulator(result + first * STRIDE + 16 * j, STRIDE, o[j]);
    }
    block_sync();
    for (int index = thread_index(); index < 64 * (SLICE / CHUNK); index += THREADS) {
      int row = index / (SLICE / CHUNK), column = index % (SLICE / CHUNK) * CHUNK;
      copy_chunk(out + ((uint64)position * 64 + row) * width + head * DEPTH + slice + column,
                 result + row * STRIDE + column);
    }
  }
}
