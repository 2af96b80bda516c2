// SPDX-License-Identifier: GPL-3.0-or-later
// Matrix product with a fused epilogue:
//   out[m][n] = activation(sum over k of a[m][k] b[n][k] + bias + residual)
//
// a: activations, row stride lda. b: weights [n][k], as in the network file. n and k are multiples of CHUNK.
// CONVOLUTION: a 3x3 convolution with zero padding as an implicit product: a is [m][channels] with m =
// position * 64 + square, k = tap * channels + channel, and the loads read the neighbours. bias: float [n],
// or [64][n] by square (BIAS_BY_SQUARE), or null. RESIDUAL: an element matrix like out. SPLIT: split-K: block
// z sums only split_steps of the steps along k and writes float partial sums [z][m][n], which `rows` adds up,
// to occupy the chip when m and n are small.
//
// WARPS_K: sliced-K: groups of waves share the steps of 16 along k and add up their accumulators at the end.
// With few rows one group of waves has too little work per step to hide its latency.
//
// PACKED: the bits of a weight, 8 or 4, if b holds codes and `scales` their factors (packed.h); 0 if b holds
// elements. Codes are copied to shared memory unchanged.
//
// FORMAT: a and b hold pairs of e4m3 numbers as elements, k counts pairs (e4m3.h). Sums are multiplied by
// `scale`, those of the first `first_columns` columns by `first_scale`. ROUND: out holds e4m3 numbers, the
// results times round_scale, n per row and with row stride ldo.
//
// SEGMENT: row m of a is a whole board: the SEGMENT elements from column `channels` on of each of its 64
// rows.
//
// Grid: (n / BLOCK_N, m / BLOCK_M, splits). WARPS_M x WARPS_N waves each own a (BLOCK_M / WARPS_M) x (BLOCK_N
// / WARPS_N) part of the tile. K advances by BLOCK_K through STAGES buffers in shared memory, filled by
// asynchronous copies if the hardware has them (three tiles ahead hide the latency of HBM), else one tile
// ahead through registers. A row in shared memory is padded by one chunk, so that 8 rows are in different
// banks; on AMD's matrix units its chunks are swizzled instead (swizzled.h).
//
// WHOLE_STEPS: k is a multiple of BLOCK_K (without CONVOLUTION and SEGMENT), so that threads without
// asynchronous copies compute the addresses of their chunks once.
//
// DIRECT: b holds fragments of MFMA, which waves load into registers without shared memory
// (swizzled_products.h); k is a multiple of twice BLOCK_K.
//
// INPUT_NORM, RESIDUAL_NORM, ROW_SUMS: layer norms that the product before has left to this one, or that this
// one leaves to the next (row_norms.h); k must not be split. norm_columns: float [n], the sums of each
// column's weights, or gammas. The first two need BIAS; with ROW_SUMS n is a multiple of BLOCK_N.
#include "activation.h"
#include "matrix.h"
#include "row_norms.h"
#if PACKED
#include "packed.h"
#endif
#if ROUND == E4M3
#include "e4m3.h"
#endif

#if NORMED && ASYNC_COPY
#error "norms are left to readers only where tiles come through registers"
#endif
#if !ASYNC_COPY
#undef STAGES
#define STAGES 2
#endif
#if !PACKED && (defined(MATRIX_MFMA) || defined(MATRIX_WMMA_GFX11) || defined(MATRIX_WMMA_GFX12))
#define SWIZZLED 1
#else
#define SWIZZLED 0
#endif
// Without a matrix unit (the tests' CPU fibers), fragments are only another order of b.
#define FRAGMENTS (DIRECT && SWIZZLED)
#if DIRECT && !SWIZZLED
#undef WHOLE_STEPS
#define WHOLE_STEPS 0
#endif

constexpr int THREADS = WARPS_M * WARPS_N * WARPS_K * WAVE;
constexpr int STRIDE = BLOCK_K + (SWIZZLED ? 0 : CHUNK);
constexpr int TILE_A_BYTES = BLOCK_M * STRIDE * (int)sizeof(Element);
constexpr int ROW_CHUNKS = BLOCK_K / CHUNK;
constexpr int CHUNKS_A = (BLOCK_M * ROW_CHUNKS + THREADS - 1) / THREADS;
constexpr int CHUNK_B = 128 / (PACKED ? PACKED : 8 * (int)sizeof(Element));  // weights in 16 bytes
constexpr int ROW_CHUNKS_B = BLOCK_K / CHUNK_B;
constexpr int STRIDE_B = 16 * (ROW_CHUNKS_B + (SWIZZLED ? 0 : 1));
constexpr int TILE_B_BYTES = FRAGMENTS ? 0 : BLOCK_N * STRIDE_B;
constexpr int CHUNKS_B = FRAGMENTS ? 1 : (BLOCK_N * ROW_CHUNKS_B + THREADS - 1) / THREADS;
#if PACKED == 4
constexpr int ROW_CHUNKS_SCALES = BLOCK_N / CHUNK;
constexpr int CHUNKS_SCALES = BLOCK_K / PACKED_GROUP * ROW_CHUNKS_SCALES;  // at most one per thread
constexpr int TILE_SCALES_BYTES = 16 * CHUNKS_SCALES;
static_assert(CHUNKS_SCALES <= THREADS, "a thread copies one chunk of scales");
#else
constexpr int TILE_SCALES_BYTES = 0;
#endif
constexpr int STAGE_BYTES = TILE_A_BYTES + TILE_B_BYTES + TILE_SCALES_BYTES;
constexpr int TILES_M = BLOCK_M / WARPS_M / 16;
constexpr int TILES_N = BLOCK_N / WARPS_N / 16;
constexpr int OUT_STRIDE = BLOCK_N + CHUNK;

// A part of a row's columns, for the sums that the product leaves.
constexpr int PART_COLUMNS = BLOCK_N / WARPS_N;
static_assert(!NORMED || THREADS >= BLOCK_M, "a thread has one row's norm");

#include "gemm_loads.h"
#if SWIZZLED
#include "swizzled_out.h"
#include "swizzled_products.h"
#else
// The fragment of b with 16 weights from k on, of the 16 columns from `column` on.
DEVICE FragmentB fragment_b(const char* tile, int column, int k) {
  const char* rows = tile + TILE_A_BYTES + column * STRIDE_B;
#if PACKED
  const Element* scales =
      (const Element*)(tile + TILE_A_BYTES + TILE_B_BYTES) + k / PACKED_GROUP * BLOCK_N + column;
  return load_packed_b(rows + k * PACKED / 8, STRIDE_B, scales);
#else
  return load_b((const Element*)rows + k, STRIDE);
#endif
}

DEVICE void multiply_tile(Accumulator (&c)[TILES_M][TILES_N], const char* tile, int warp_m, int warp_n,
                          int warp_k) {
  const Element* a = (const Element*)tile + warp_m * (BLOCK_M / WARPS_M) * STRIDE;
  UNROLL_PRODUCTS
  for (int step = 0; step < BLOCK_K; step += 16 * WARPS_K) {
    const int k = step + 16 * warp_k;
    FragmentB fragments[TILES_N];
#pragma unroll
    for (int j = 0; j < TILES_N; j++) fragments[j] = fragment_b(tile, (warp_n * TILES_N + j) * 16, k);
#pragma unroll
    for (int i = 0; i < TILES_M; i++) {
      FragmentA fragment = load_a(a + i * 16 * STRIDE + k, STRIDE);
#pragma unroll
      for (int j = 0; j < TILES_N; j++)
#if FORMAT
        multiply_pairs(c[i][j], fragment, fragments[j]);
#else
        multiply(c[i][j], fragment, fragments[j]);
#endif
    }
  }
}
#endif

KERNEL(gemm, THREADS)
(const Element* a, const char* b, const void* scales, const float* bias, const Element* residual,
 Element* out, float* partials, int m, int n, int k, int lda, int ldo, int channels, int split_steps,
 float scale, float first_scale, int first_columns, float round_scale, const RowSums* norm_parts,
 const float* norm_columns, float per_column, float epsilon, RowSums* row_sums) {
#if defined(WAVEFRONT_CPU)
  // With a matrix unit, the host allocates memory for swizzled tiles, which these are not.
  constexpr int SUMS_BYTES = (WARPS_K - 1) * BLOCK_M * BLOCK_N * 4;
  constexpr int OUT_BYTES = BLOCK_M * OUT_STRIDE * (int)sizeof(Element), LOADED = STAGES * STAGE_BYTES;
  constexpr int ENDS = OUT_BYTES + (NORMED ? BLOCK_M * (int)sizeof(RowNorm) : 0);
  constexpr int LARGER = SUMS_BYTES > ENDS ? SUMS_BYTES : ENDS;
  alignas(16) SHARED char shared[LARGER > LOADED ? LARGER : LOADED];
#else
  DYNAMIC_SHARED(shared);
#endif
  const Problem problem = {a, b, (const Element*)scales, m, n, k, lda, channels};
  const int wave = wave_index(), warp_n = wave % WARPS_N, warp_m = wave / WARPS_N % WARPS_M;
  const int warp_k = wave / (WARPS_M * WARPS_N);
  const int m0 = block_y() * BLOCK_M, n0 = block_x() * BLOCK_N;

  Accumulator c[TILES_M][TILES_N];
#pragma unroll
  for (int i = 0; i < TILES_M; i++)
#pragma unroll
    for (int j = 0; j < TILES_N; j++) clear(c[i][j]);

  int first = 0, steps = (k + BLOCK_K - 1) / BLOCK_K;
#if SPLIT
  first = block_z() * split_steps;
  steps = steps - first < split_steps ? steps - first : split_steps;
#endif
  start_kernel();
#if ASYNC_COPY
  // Weights do not depend on other kernels, so the first tiles load before the previous kernel has ended.
#pragma unroll
  for (int stage = 0; stage < STAGES - 1; stage++)
    if (stage < steps) load_tile_b(problem, shared + stage * STAGE_BYTES, n0, (first + stage) * BLOCK_K);
  wait_for_previous_kernel();
#pragma unroll
  for (int stage = 0; stage < STAGES - 1; stage++) {
    if (stage < steps) load_tile_a(problem, shared + stage * STAGE_BYTES, m0, (first + stage) * BLOCK_K);
    copy_commit();
  }
  for (int step = 0; step < steps; step++) {
    copy_wait<STAGES - 2>();
    block_sync();
    int ahead = step + STAGES - 1;
    if (ahead < steps) {
      char* tile = shared + ahead % STAGES * STAGE_BYTES;
      load_tile_a(problem, tile, m0, (first + ahead) * BLOCK_K);
      load_tile_b(problem, tile, n0, (first + ahead) * BLOCK_K);
    }
    copy_commit();
    multiply_tile(c, shared + step % STAGES * STAGE_BYTES, warp_m, warp_n, warp_k);
  }
  copy_wait<0>();
#else
  wait_for_previous_kernel();
  Places places = places_of(problem, m0, n0);
  StagedChunks staged;
  if (steps > 0) {
    fetch_tile(problem, places, staged, m0, n0, first * BLOCK_K);
    store_tile(staged, shared);
  }
#if FRAGMENTS
#if NORMED
  // Load the norms early: a SIMD may have no other wave to hide their latency at the end.
  const RowNorm norm = row_norm(norm_parts, m0 + thread_index() % BLOCK_M, m, per_column, epsilon);
#endif
  // An even number of steps, two at a time, so that fragments need not be moved between registers. The last
  // step fetches its own fragments again.
  Fragments fragments[2];
  fetch_fragments(problem, fragments[0], n0, warp_n, 0);
  for (int step = 0; step < steps; step += 2) {
#pragma unroll
    for (int turn = 0; turn < 2; turn++) {
      const int next = step + turn + 1 < steps ? step + turn + 1 : step + turn;
      block_sync();
      fetch_tile(problem, places, staged, m0, n0, next * BLOCK_K);
      fetch_fragments(problem, fragments[1 - turn], n0, warp_n, next * BLOCK_K);
      multiply_tile(c, shared + turn * STAGE_BYTES, fragments[turn], warp_m);
      store_tile(staged, shared + (1 - turn) * STAGE_BYTES);
    }
  }
#else
  for (int step = 0; step < steps; step++) {
    block_sync();
    if (step + 1 < steps) fetch_tile(problem, places, staged, m0, n0, (first + step + 1) * BLOCK_K);
    multiply_tile(c, shared + step % 2 * STAGE_BYTES, warp_m, warp_n, warp_k);
    if (step + 1 < steps) store_tile(staged, shared + (step + 1) % 2 * STAGE_BYTES);
  }
#endif
#endif
  block_sync();

#if WARPS_K > 1
  // All groups along k but the first pass their accumulators to the first through shared memory.
  constexpr int SUMS = TILES_M * TILES_N * ACCUMULATORS * WAVE;
  float* sums = (float*)shared + wave % (WARPS_M * WARPS_N) * SUMS + lane_index();
#pragma unroll
  for (int group = 1; group < WARPS_K; group++) {
    float* from = sums + (group - 1) * WARPS_M * WARPS_N * SUMS;
    if (warp_k == group)
#pragma unroll
      for (int i = 0; i < TILES_M * TILES_N * ACCUMULATORS; i++)
        from[i * WAVE] = c[i / ACCUMULATORS / TILES_N][i / ACCUMULATORS % TILES_N].value[i % ACCUMULATORS];
  }
  block_sync();
  if (warp_k == 0)
#pragma unroll
    for (int group = 1; group < WARPS_K; group++)
#pragma unroll
      for (int i = 0; i < TILES_M * TILES_N * ACCUMULATORS; i++)
        c[i / ACCUMULATORS / TILES_N][i / ACCUMULATORS % TILES_N].value[i % ACCUMULATORS] +=
            sums[(group - 1) * WARPS_M * WARPS_N * SUMS + i * WAVE];
  block_sync();
#endif

#if NORMED && !FRAGMENTS  // earlier there are no free registers
  const RowNorm norm = row_norm(norm_parts, m0 + thread_index() % BLOCK_M, m, per_column, epsilon);
#elif !NORMED
  const RowNorm norm = {0.0f, 0.0f};
#endif
#if SWIZZLED
  write_tile(c, shared, warp_m, warp_n, WARPS_K == 1 || warp_k == 0, m0, n0, norm,
             Results{bias, residual, out, partials, m, n, ldo, scale, first_scale, first_columns, round_scale,
                     norm_columns, row_sums});
#else
  Element* tiles = (Element*)shared;
#if NORMED
  RowNorm* norms = (RowNorm*)(shared + BLOCK_M * OUT_STRIDE * sizeof(Element));
  if (thread_index() < BLOCK_M) norms[thread_index()] = norm;
  block_sync();
#endif
  // The tile goes through shared memory so that its rows are accessed in whole chunks.
#if RESIDUAL
  for (int index = thread_index(); index < BLOCK_M * (BLOCK_N / CHUNK); index += THREADS) {
    int row = index / (BLOCK_N / CHUNK), column = index % (BLOCK_N / CHUNK) * CHUNK;
    if (m0 + row < m && n0 + column < n)
      copy_chunk(tiles + row * OUT_STRIDE + column, residual + (uint64)(m0 + row) * ldo + n0 + column);
  }
  block_sync();
#endif
#pragma unroll
  for (int i = 0; i < TILES_M; i++)
#pragma unroll
    for (int j = 0; j < TILES_N; j++)
#pragma unroll
      for (int e = 0; e < ACCUMULATORS; e++) {
        int row = (warp_m * TILES_M + i) * 16 + accumulator_row(e);
        int column = (warp_n * TILES_N + j) * 16 + accumulator_column(e);
        int global_row = m0 + row, global_column = n0 + column;
        bool inside = global_row < m && global_column < n && warp_k == 0;
        float value = c[i][j].value[e];
#if PACKED == 8
        if (inside) value *= ((const float*)scales)[global_column];
#endif
#if FORMAT == E4M3
        value *= global_column < first_columns ? first_scale : scale;
#endif
#if SPLIT
        if (inside) partials[((uint64)block_z() * m + global_row) * n + global_column] = value;
#else
#if INPUT_NORM
        if (inside) value = value * norms[row].scale + norms[row].shift * norm_columns[global_column];
#endif
#if BIAS_BY_SQUARE
        if (inside) value += bias[global_row % 64 * n + global_column];
#elif BIAS
        if (inside) value += bias[global_column];
#endif
#if RESIDUAL_NORM
        if (inside)
          value += (to_float(tiles[row * OUT_STRIDE + column]) * norms[row].scale + norms[row].shift) *
                   norm_columns[global_column];
#elif RESIDUAL
        if (inside) value += to_float(tiles[row * OUT_STRIDE + column]);
#endif
        if (warp_k == 0) tiles[row * OUT_STRIDE + column] = to_element(activate<ACTIVATION>(value));
#endif
      }
#if !SPLIT
  block_sync();
#if ROW_SUMS
  for (int index = thread_index(); index < BLOCK_M * WARPS_N; index += THREADS) {
    const int row = index % BLOCK_M, part = index / BLOCK_M;
    RowSums sums = {0.0f, 0.0f};
    for (int column = 0; column < PART_COLUMNS; column++) {
      const float x = to_float(tiles[row * OUT_STRIDE + part * PART_COLUMNS + column]);
      sums = {sums.sum + x, sums.squares + x * x};
    }
    if (m0 + row < m) row_sums[(uint64)(n0 / PART_COLUMNS + part) * m + m0 + row] = sums;
  }
#endif
  for (int index = thread_index(); index < BLOCK_M * (BLOCK_N / CHUNK); index += THREADS) {
    int row = index / (BLOCK_N / CHUNK), column = index % (BLOCK_N / CHUNK) * CHUNK;
    if (m0 + row < m && n0 + column < n) {
#if ROUND == E4M3
      float x[CHUNK];
      read_chunk(x, tiles + row * OUT_STRIDE + column);
      *(Bits64*)((char*)out + (uint64)(m0 + row) * ldo + n0 + column) = e4m3_chunk(x, round_scale);
#else
      copy_chunk(out + (uint64)(m0 + row) * ldo + n0 + column, tiles + row * OUT_STRIDE + column);
#endif
    }
  }
#endif
#endif
}
