// Matrix product with a fused end: out[m][n] = activation(sum over k of a[m][k] b[n][k] + bias + residual).
//
// a: activations, row stride lda. b: weights [n][k], as the network file has them. n and k are multiples of
// CHUNK. CONVOLUTION: a is [m][channels] with m = position * 64 + square, k = tap * channels + channel, and a
// 3x3 convolution with zero padding is computed as this same product, the neighbours being picked up while
// loading. bias: float [n], or [64][n] by square (BIAS_BY_SQUARE), or null. RESIDUAL: an element matrix like
// out. SPLIT: block z sums only its share of the steps along k and leaves float partial sums [z][m][n], which
// `rows` adds up: the way to occupy the chip when m and n are small.
//
// WARPS_K: groups of waves that share the steps of 16 along k and add up their sums at the end. With few rows
// a wave has too little to do in each step to hide its latency; several groups of them do.
//
// SEGMENT: row m of a is a whole board: the SEGMENT elements from column `channels` on of each of its 64
// rows.
//
// Grid: (n / BLOCK_N, m / BLOCK_M, splits). WARPS_M x WARPS_N waves each own a (BLOCK_M / WARPS_M) x (BLOCK_N
// / WARPS_N) part of the tile. K advances by BLOCK_K through STAGES buffers in shared memory: asynchronous
// copies where the hardware has them (three tiles ahead hide the latency of HBM), else one tile ahead through
// registers. A row in shared memory is padded by one chunk: 8 rows then fall into different banks.
#include "activation.h"
#include "matrix.h"

#if !ASYNC_COPY
#undef STAGES
#define STAGES 2
#endif

constexpr int THREADS = WARPS_M * WARPS_N * WARPS_K * WAVE;
constexpr int STRIDE = BLOCK_K + CHUNK;
constexpr int TILE_A = BLOCK_M * STRIDE;
constexpr int TILE_B = BLOCK_N * STRIDE;
constexpr int ROW_CHUNKS = BLOCK_K / CHUNK;
constexpr int CHUNKS_A = (BLOCK_M * ROW_CHUNKS + THREADS - 1) / THREADS;
constexpr int CHUNKS_B = (BLOCK_N * ROW_CHUNKS + THREADS - 1) / THREADS;
constexpr int TILES_M = BLOCK_M / WARPS_M / 16;
constexpr int TILES_N = BLOCK_N / WARPS_N / 16;
constexpr int OUT_STRIDE = BLOCK_N + CHUNK;

struct Problem {
  const Element* a;
  const Element* b;
  int m, n, k, lda, channels;
};

// Where chunk (row, k) of A lies; null where it is zero.
DEVICE const Element* source_a(const Problem& p, int row, int k) {
  if (row >= p.m || k >= p.k) return nullptr;
#if CONVOLUTION
  int tap = k / p.channels, channel = k - tap * p.channels;
  int square = row % 64, rank = square / 8 + tap / 3 - 1, file = square % 8 + tap % 3 - 1;
  if (rank < 0 || rank > 7 || file < 0 || file > 7) return nullptr;
  return p.a + (uint64)(row - square + rank * 8 + file) * p.lda + channel;
#elif SEGMENT
  return p.a + ((uint64)row * 64 + k / SEGMENT) * p.lda + p.channels + k % SEGMENT;
#else
  return p.a + (uint64)row * p.lda + k;
#endif
}

DEVICE const Element* source_b(const Problem& p, int row, int k) {
  if (row >= p.n || k >= p.k) return nullptr;
  return p.b + (uint64)row * p.k + k;
}

#if ASYNC_COPY
DEVICE void load_tile_a(const Problem& p, Element* tile, int m0, int k0) {
#pragma unroll
  for (int i = 0; i < CHUNKS_A; i++) {
    int index = thread_index() + i * THREADS, row = index / ROW_CHUNKS, column = index % ROW_CHUNKS * CHUNK;
    if (BLOCK_M * ROW_CHUNKS % THREADS && row >= BLOCK_M) break;
    const Element* from = source_a(p, m0 + row, k0 + column);
    copy_async(tile + row * STRIDE + column, from ? from : p.a, from != nullptr);
  }
}
DEVICE void load_tile_b(const Problem& p, Element* tile, int n0, int k0) {
#pragma unroll
  for (int i = 0; i < CHUNKS_B; i++) {
    int index = thread_index() + i * THREADS, row = index / ROW_CHUNKS, column = index % ROW_CHUNKS * CHUNK;
    if (BLOCK_N * ROW_CHUNKS % THREADS && row >= BLOCK_N) break;
    const Element* from = source_b(p, n0 + row, k0 + column);
    copy_async(tile + TILE_A + row * STRIDE + column, from ? from : p.b, from != nullptr);
  }
}
#else
struct Staged {
  Bits128 a[CHUNKS_A], b[CHUNKS_B];
};
DEVICE void fetch_tile(const Problem& p, Staged& staged, int m0, int n0, int k0) {
#pragma unroll
  for (int i = 0; i < CHUNKS_A; i++) {
    int index = thread_index() + i * THREADS, row = index / ROW_CHUNKS, column = index % ROW_CHUNKS * CHUNK;
    const Element* from = row < BLOCK_M ? source_a(p, m0 + row, k0 + column) : nullptr;
    staged.a[i] = from ? read_global(from) : Bits128{{0, 0, 0, 0}};
  }
#pragma unroll
  for (int i = 0; i < CHUNKS_B; i++) {
    int index = thread_index() + i * THREADS, row = index / ROW_CHUNKS, column = index % ROW_CHUNKS * CHUNK;
    const Element* from = row < BLOCK_N ? source_b(p, n0 + row, k0 + column) : nullptr;
    staged.b[i] = from ? read_global(from) : Bits128{{0, 0, 0, 0}};
  }
}
DEVICE void store_tile(const Staged& staged, Element* tile) {
#pragma unroll
  for (int i = 0; i < CHUNKS_A; i++) {
    int index = thread_index() + i * THREADS, row = index / ROW_CHUNKS, column = index % ROW_CHUNKS * CHUNK;
    if (row < BLOCK_M) *(Bits128*)(tile + row * STRIDE + column) = staged.a[i];
  }
#pragma unroll
  for (int i = 0; i < CHUNKS_B; i++) {
    int index = thread_index() + i * THREADS, row = index / ROW_CHUNKS, column = index % ROW_CHUNKS * CHUNK;
    if (row < BLOCK_N) *(Bits128*)(tile + TILE_A + row * STRIDE + column) = staged.b[i];
  }
}
#endif

DEVICE void multiply_tile(Accumulator (&c)[TILES_M][TILES_N], const Element* tile, int warp_m, int warp_n,
                          int warp_k) {
  const Element* a = tile + warp_m * (BLOCK_M / WARPS_M) * STRIDE;
  const Element* b = tile + TILE_A + warp_n * (BLOCK_N / WARPS_N) * STRIDE;
  UNROLL_PRODUCTS
  for (int step = 0; step < BLOCK_K; step += 16 * WARPS_K) {
    const int k = step + 16 * warp_k;
    FragmentB fragments[TILES_N];
#pragma unroll
    for (int j = 0; j < TILES_N; j++) fragments[j] = load_b(b + j * 16 * STRIDE + k, STRIDE);
#pragma unroll
    for (int i = 0; i < TILES_M; i++) {
      FragmentA fragment = load_a(a + i * 16 * STRIDE + k, STRIDE);
#pragma unroll
      for (int j = 0; j < TILES_N; j++) multiply(c[i][j], fragment, fragments[j]);
    }
  }
}

KERNEL(gemm, THREADS)
(const Element* a, const Element* b, const float* bias, const Element* residual, Element* out,
 float* partials, int m, int n, int k, int lda, int ldo, int channels, int share) {
  DYNAMIC_SHARED(shared);
  Element* tiles = (Element*)shared;
  const Problem problem = {a, b, m, n, k, lda, channels};
  const int wave = thread_index() / WAVE, warp_n = wave % WARPS_N, warp_m = wave / WARPS_N % WARPS_M;
  const int warp_k = wave / (WARPS_M * WARPS_N);
  const int m0 = block_y() * BLOCK_M, n0 = block_x() * BLOCK_N;

  Accumulator c[TILES_M][TILES_N];
#pragma unroll
  for (int i = 0; i < TILES_M; i++)
#pragma unroll
    for (int j = 0; j < TILES_N; j++) clear(c[i][j]);

  int first = 0, steps = (k + BLOCK_K - 1) / BLOCK_K;
#if SPLIT
  first = block_z() * share;
  steps = steps - first < share ? steps - first : share;
#endif
  start_kernel();
#if ASYNC_COPY
  // Weights depend on no other kernel: the first of them are on their way before the previous one has ended.
#pragma unroll
  for (int stage = 0; stage < STAGES - 1; stage++)
    if (stage < steps) load_tile_b(problem, tiles + stage * (TILE_A + TILE_B), n0, (first + stage) * BLOCK_K);
  wait_for_previous_kernel();
#pragma unroll
  for (int stage = 0; stage < STAGES - 1; stage++) {
    if (stage < steps) load_tile_a(problem, tiles + stage * (TILE_A + TILE_B), m0, (first + stage) * BLOCK_K);
    copy_commit();
  }
  for (int step = 0; step < steps; step++) {
    copy_wait<STAGES - 2>();
    block_sync();
    int ahead = step + STAGES - 1;
    if (ahead < steps) {
      Element* tile = tiles + ahead % STAGES * (TILE_A + TILE_B);
      load_tile_a(problem, tile, m0, (first + ahead) * BLOCK_K);
      load_tile_b(problem, tile, n0, (first + ahead) * BLOCK_K);
    }
    copy_commit();
    multiply_tile(c, tiles + step % STAGES * (TILE_A + TILE_B), warp_m, warp_n, warp_k);
  }
  copy_wait<0>();
#else
  wait_for_previous_kernel();
  Staged staged;
  if (steps > 0) {
    fetch_tile(problem, staged, m0, n0, first * BLOCK_K);
    store_tile(staged, tiles);
  }
  for (int step = 0; step < steps; step++) {
    block_sync();
    if (step + 1 < steps) fetch_tile(problem, staged, m0, n0, (first + step + 1) * BLOCK_K);
    multiply_tile(c, tiles + step % 2 * (TILE_A + TILE_B), warp_m, warp_n, warp_k);
    if (step + 1 < steps) store_tile(staged, tiles + (step + 1) % 2 * (TILE_A + TILE_B));
  }
#endif
  block_sync();

#if WARPS_K > 1
  // Every wave but those of the first group along k hands its sums over.
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

  // The tile goes through shared memory so that its rows come and leave in whole chunks.
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
#if SPLIT
        if (inside) partials[((uint64)block_z() * m + global_row) * n + global_column] = c[i][j].value[e];
#else
        float value = c[i][j].value[e];
#if BIAS_BY_SQUARE
        if (inside) value += bias[global_row % 64 * n + global_column];
#elif BIAS
        if (inside) value += bias[global_column];
#endif
#if RESIDUAL
        if (inside) value += to_float(tiles[row * OUT_STRIDE + column]);
#endif
        if (warp_k == 0) tiles[row * OUT_STRIDE + column] = to_element(activate<ACTIVATION>(value));
#endif
      }
#if !SPLIT
  block_sync();
  for (int index = thread_index(); index < BLOCK_M * (BLOCK_N / CHUNK); index += THREADS) {
    int row = index / (BLOCK_N / CHUNK), column = index % (BLOCK_N / CHUNK) * CHUNK;
    if (m0 + row < m && n0 + column < n)
      copy_chunk(out + (uint64)(m0 + row) * ldo + n0 + column, tiles + row * OUT_STRIDE + column);
  }
#endif
}
