// SPDX-License-Identifier: GPL-3.0-or-later
// The product of gemm.hip for some hundred rows on sm_90a, by wgmma:
//   out[m][n] = activation(sum over k of a[m][k] b[n][k] + bias + residual)
// One tile per processor would be too small to be fast, and larger tiles too few. So SPLITS blocks of a
// cluster share the steps along k of one tile, and add up their sums in each other's shared memory. And
// CLUSTER_M blocks with tiles below each other load the common weights for each other (multicast). CPU fibers
// and other targets cannot run it.
//
// a: [m][k] and b: weights [n][k] are tensor maps (boxes of BLOCK_M x 64 and BLOCK_N x 64, 128-byte swizzle,
// the order of b's rows as in gemm_hopper.hip); k is a multiple of 8, n one of 32. bias: float [n]. residual,
// out: rows of ldo elements; they may be the same.
//
// INPUT_NORM, RESIDUAL_NORM, ROW_SUMS: as in gemm.hip (row_norms.h). A part of a row's columns is 32 of them.
//
// Waves: four for each 64 rows of the tile, then one that loads. Weights load before the previous kernel has
// ended. Grid: the clusters of all tiles, columns first.
#include "activation.h"
#include "hopper.h"
#include "row_norms.h"

constexpr int WARPGROUP = 128, PART_COLUMNS = 32;
static_assert(BLOCK_K == 64, "rows of 128 bytes are swizzled");
constexpr int CONSUMERS = BLOCK_M / 64 * WARPGROUP, CONSUMER_WAVES = CONSUMERS / WAVE;
constexpr int THREADS = CONSUMERS + WAVE;
constexpr int CLUSTER = CLUSTER_M * SPLITS;
constexpr int TILE_A_BYTES = BLOCK_M * BLOCK_K * 2, TILE_B_BYTES = BLOCK_N * BLOCK_K * 2;
constexpr int STAGE_BYTES = TILE_A_BYTES + TILE_B_BYTES;
// A unit is 8 columns in one row; a thread has one in each of two rows for each 32 columns. Each block that
// shares a tile finishes OWN_UNITS.
constexpr int UNITS = BLOCK_N / PART_COLUMNS * 2, OWN_UNITS = UNITS / SPLITS;
static_assert(BLOCK_M % 64 == 0 && UNITS % SPLITS == 0, "");
// Offsets in shared memory, in bytes. The sums replace the stages.
constexpr int SUMS_BYTES = SPLITS > 1 ? BLOCK_M* BLOCK_N * 4 : 0;
constexpr int FULL_BARRIERS = STAGES * STAGE_BYTES > SUMS_BYTES ? STAGES* STAGE_BYTES : SUMS_BYTES;
constexpr int EMPTY_BARRIERS = FULL_BARRIERS + 8 * STAGES;
constexpr int VECTORS = EMPTY_BARRIERS + 8 * STAGES;  // bias and norm_columns, float [2][BLOCK_N]

struct Problem {
  const float* bias;
  const Element* residual;
  Element* out;
  int m, n, k, ldo;
  const RowSums* norm_parts;
  const float* norm_columns;
  float per_column, epsilon;
  RowSums* row_sums;
};

// A block's tile (first row and column), its row and its split in the cluster, and its own range of steps of
// BLOCK_K along k.
struct Place {
  int m0, n0, cluster_row, split, first_step, steps;
};
DEVICE Place place_of(const Problem& problem) {
  const int rank = CLUSTER == 1 ? 0 : (int)rank_in_cluster();
  const int tiles_n = (problem.n + BLOCK_N - 1) / BLOCK_N, cluster = block_x() / CLUSTER;
  const int all = (problem.k + BLOCK_K - 1) / BLOCK_K, share = (all + SPLITS - 1) / SPLITS;
  Place place;
  place.cluster_row = rank % CLUSTER_M;
  place.split = rank / CLUSTER_M;
  place.m0 = (cluster / tiles_n * CLUSTER_M + place.cluster_row) * BLOCK_M;
  place.n0 = cluster % tiles_n * BLOCK_N;
  place.first_step = place.split * share;
  place.steps = all - place.first_step < share ? all - place.first_step : share;
  return place;
}

// --- producer: one thread ---

DEVICE void load(const TensorMap& a, const TensorMap& b, uint32 shared, const Place& place) {
  const int multicast_mask = ((1 << CLUSTER_M) - 1) << (place.split * CLUSTER_M);
  const auto full = [&](int step) { return shared + FULL_BARRIERS + 8 * (step % STAGES); };
  const auto load_a = [&](int step) {
    tma_load_2d(shared + step % STAGES * STAGE_BYTES, a, full(step), (place.first_step + step) * BLOCK_K,
                place.m0);
  };
  const auto load_b = [&](int step) {
    const uint32 to = shared + step % STAGES * STAGE_BYTES + TILE_A_BYTES;
    const int x = (place.first_step + step) * BLOCK_K, z = place.n0 / 32;
    barrier_arrive_expect(full(step), STAGE_BYTES);
    if constexpr (CLUSTER_M == 1)
      tma_load_5d(to, b, full(step), x, z);
    else if (step % CLUSTER_M == place.cluster_row)  // the blocks alternate
      tma_load_5d(to, b, full(step), x, z, multicast_mask);
  };
  const int at_once = place.steps < STAGES ? place.steps : STAGES;
  for (int step = 0; step < at_once; step++) load_b(step);
  wait_for_previous_kernel();
  for (int step = 0; step < at_once; step++) load_a(step);
  for (int step = at_once; step < place.steps; step++) {
    barrier_wait(shared + EMPTY_BARRIERS + 8 * (step % STAGES), step / STAGES % 2 ^ 1);
    load_b(step);
    load_a(step);
  }
}

// --- consumers: a warpgroup for each 64 rows ---

// Tells every block that loads into this one that this wave no longer needs a stage.
DEVICE void release(uint32 shared, const Place& place, int stage) {
  const int lane = thread_index() % WAVE;
  const uint32 barrier = shared + EMPTY_BARRIERS + 8 * stage;
  if constexpr (CLUSTER_M == 1)
    barrier_arrive_if(barrier, lane == 0);
  else
    barrier_arrive_in_cluster_if(barrier, place.split * CLUSTER_M + (lane < CLUSTER_M ? lane : 0),
                                 lane < CLUSTER_M);
}

DEVICE void multiply(float (&c)[BLOCK_N / 2], uint32 shared, const Place& place) {
  const uint32 own_rows = thread_index() / WARPGROUP * (64 * BLOCK_K * 2);
  for (int step = 0; step < place.steps; step++) {
    const int stage = step % STAGES;
    const uint32 at = shared + stage * STAGE_BYTES;
    barrier_wait(shared + FULL_BARRIERS + 8 * stage, step / STAGES % 2);
    const uint64 a = matrix_descriptor(at + own_rows), b = matrix_descriptor(at + TILE_A_BYTES);
    wgmma_fence();
#pragma unroll
    for (int part = 0; part < BLOCK_K / 16; part++)
      wgmma<BLOCK_N>(c, a + 2 * part, b + 2 * part, step > 0 || part > 0);
    wgmma_commit();
    if (step > 0) {
      wgmma_wait<1>();
      release(shared, place, (step - 1) % STAGES);
    }
  }
  wgmma_wait<0>();
}

// The 8 columns of a unit, from a thread's own accumulators.
DEVICE void gather(float (&x)[8], const float (&c)[BLOCK_N / 2], int unit) {
#pragma unroll
  for (int i = 0; i < 8; i++) x[i] = c[16 * (unit / 2) + i / 2 * 4 + 2 * (unit % 2) + i % 2];
}

// The offset of a unit's half in a block's sums.
DEVICE int sums_at(int unit, int half) {
  return ((2 * unit + half) * CONSUMERS + thread_index()) * 16;
}
DEVICE void store_sums(uint32 shared, const float (&c)[BLOCK_N / 2]) {
#pragma unroll
  for (int unit = 0; unit < UNITS; unit++) {
    float x[8];
    gather(x, c, unit);
#pragma unroll
    for (int half = 0; half < 2; half++) store_shared(shared + sums_at(unit, half), x + 4 * half);
  }
}
// The sums of a unit, added up over all blocks that share the tile.
DEVICE void add_sums(float (&x)[8], uint32 shared, const Place& place, int unit) {
  float4 part[SPLITS][2];
#pragma unroll
  for (int split = 0; split < SPLITS; split++)
#pragma unroll
    for (int half = 0; half < 2; half++)
      part[split][half] =
          load_in_cluster(shared + sums_at(unit, half), split * CLUSTER_M + place.cluster_row);
#pragma unroll
  for (int i = 0; i < 8; i++) x[i] = 0.0f;
#pragma unroll
  for (int split = 0; split < SPLITS; split++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      x[4 * half] += part[split][half].x;
      x[4 * half + 1] += part[split][half].y;
      x[4 * half + 2] += part[split][half].z;
      x[4 * half + 3] += part[split][half].w;
    }
}

DEVICE float quad_sum(float x) {
  x += wave_xor(x, 1);
  return x + wave_xor(x, 2);
}

#if NORMED
// The norm of a row; each of the four threads of a quad adds up a quarter of the parts.
DEVICE RowNorm norm_of(const Problem& problem, int row) {
  row = row < problem.m ? row : problem.m - 1;
  constexpr int OWN_PARTS = (NORM_PARTS + 3) / 4;
  RowSums part[OWN_PARTS];
#pragma unroll
  for (int i = 0; i < OWN_PARTS; i++) {
    const int index = 4 * i + thread_index() % 4;
    part[i] = {0.0f, 0.0f};
    if (NORM_PARTS % 4 == 0 || index < NORM_PARTS)
      part[i] = problem.norm_parts[(uint64)index * problem.m + row];
  }
  float sum = 0.0f, squares = 0.0f;
#pragma unroll
  for (int i = 0; i < OWN_PARTS; i++) {
    sum += part[i].sum;
    squares += part[i].squares;
  }
  return norm_of_sums(quad_sum(sum), quad_sum(squares), problem.per_column, problem.epsilon);
}
#endif

// Operands of a tile's epilogue, fetched before the sums are ready. norms: of a thread's two rows.
struct Fetched {
  Bits128 residual[OWN_UNITS];
  RowNorm norms[2];
};
// A thread's first row in out (the other is 8 below), its first column, and its first unit.
struct OutputTile {
  int row, column, first_unit;
};
DEVICE void fetch(Fetched& fetched, const Problem& problem, const OutputTile& tile) {
#if RESIDUAL
#pragma unroll
  for (int i = 0; i < OWN_UNITS; i++) {
    const int unit = tile.first_unit + i, row = tile.row + unit % 2 * 8, column = tile.column + unit / 2 * 32;
    fetched.residual[i] =
        load_if(problem.residual + (uint64)row * problem.ldo + column, row < problem.m && column < problem.n);
  }
#endif
#if NORMED
  fetched.norms[0] = norm_of(problem, tile.row);
  fetched.norms[1] = norm_of(problem, tile.row + 8);
#endif
}

// Norm, bias, residual and activation of a unit, and its store. vectors: of the unit's columns.
DEVICE void finish(float (&x)[8], const Problem& problem, const OutputTile& tile, const Fetched& fetched,
                   int i, const float* vectors) {
  const int unit = tile.first_unit + i, row = tile.row + unit % 2 * 8, column = tile.column + unit / 2 * 32;
  const bool inside = row < problem.m && column < problem.n;
#if NORMED
  const RowNorm norm = unit % 2 ? fetched.norms[1] : fetched.norms[0];
  float columns[8];
  read_floats(columns, vectors + BLOCK_N);
#endif
#if INPUT_NORM
#pragma unroll
  for (int e = 0; e < 8; e++) x[e] = x[e] * norm.scale + norm.shift * columns[e];
#endif
#if BIAS
  float bias[8];
  read_floats(bias, vectors);
#pragma unroll
  for (int e = 0; e < 8; e++) x[e] += bias[e];
#endif
#if RESIDUAL || RESIDUAL_NORM
  float skip[8];
  read_chunk(skip, (const Element*)&fetched.residual[i]);
#pragma unroll
  for (int e = 0; e < 8; e++)
#if RESIDUAL_NORM
    x[e] += (skip[e] * norm.scale + norm.shift) * columns[e];
#else
    x[e] += skip[e];
#endif
#endif
  activate_all<ACTIVATION>(x);
  if (inside) write_chunk(problem.out + (uint64)row * problem.ldo + column, x);
#if ROW_SUMS
  RowSums sums = {0.0f, 0.0f};
#pragma unroll
  for (int e = 0; e < 8; e++) sums = {sums.sum + x[e], sums.squares + x[e] * x[e]};
  sums = {quad_sum(sums.sum), quad_sum(sums.squares)};
  if (inside && thread_index() % 4 == 0)
    problem.row_sums[(uint64)(column / PART_COLUMNS) * problem.m + row] = sums;
#endif
}

DEVICE void consume(const Problem& problem, char* memory, uint32 shared, const Place& place) {
  const int thread = thread_index(), lane = thread % WAVE;
  float* vectors = (float*)(memory + VECTORS);
  for (int i = thread; i < BLOCK_N; i += CONSUMERS) {
    const bool inside = place.n0 + i < problem.n;
#if BIAS
    vectors[i] = inside ? problem.bias[place.n0 + i] : 0.0f;
#endif
#if NORMED
    vectors[BLOCK_N + i] = inside ? problem.norm_columns[place.n0 + i] : 0.0f;
#endif
  }
  const OutputTile tile = {place.m0 + thread / WAVE * 16 + lane / 4, place.n0 + lane % 4 * 8,
                           SPLITS == 1 ? 0 : place.split * OWN_UNITS};
  wait_for_previous_kernel();
  Fetched fetched;
  fetch(fetched, problem, tile);
  float c[BLOCK_N / 2];
  multiply(c, shared, place);
  named_barrier_sync(1, CONSUMERS);  // the vectors are stored, and the stages are no longer read
  const float* own_vectors = vectors + lane % 4 * 8;
  if constexpr (SPLITS == 1) {
#pragma unroll
    for (int i = 0; i < OWN_UNITS; i++) {
      float x[8];
      gather(x, c, i);
      finish(x, problem, tile, fetched, i, own_vectors + i / 2 * 32);
    }
  } else {
    store_sums(shared, c);
    cluster_sync();
#pragma unroll
    for (int i = 0; i < OWN_UNITS; i++) {
      float x[8];
      add_sums(x, shared, place, tile.first_unit + i);
      finish(x, problem, tile, fetched, i, own_vectors + (tile.first_unit + i) / 2 * 32);
    }
  }
}

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, MIN_BLOCKS)
    gemm_cluster(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, const float* bias,
                 const Element* residual, Element* out, int m, int n, int k, int ldo,
                 const RowSums* norm_parts, const float* norm_columns, float per_column, float epsilon,
                 RowSums* row_sums) {
  DYNAMIC_SHARED(memory);
  const uint32 shared = shared_address(memory);
  start_kernel();
  const Problem problem = {bias, residual,   out,          m,          n,       k,
                           ldo,  norm_parts, norm_columns, per_column, epsilon, row_sums};
  const Place place = place_of(problem);
  if (thread_index() == 0) {
    tma_prefetch_descriptor(a);
    tma_prefetch_descriptor(b);
    for (int stage = 0; stage < STAGES; stage++) {
      barrier_init(shared + FULL_BARRIERS + 8 * stage, 1);
      barrier_init(shared + EMPTY_BARRIERS + 8 * stage, CONSUMER_WAVES * CLUSTER_M);
    }
    barrier_init_fence();
  }
  if constexpr (CLUSTER > 1)
    cluster_sync();
  else
    block_sync();
  if (thread_index() < CONSUMERS) {
    consume(problem, memory, shared, place);
  } else {
    if (thread_index() == CONSUMERS) load(a, b, shared, place);
    __syncwarp();
    if constexpr (SPLITS > 1) cluster_sync();  // paired with the consumers' one
  }
  // A block must not end while others of its cluster may still access its shared memory.
  if constexpr (CLUSTER > 1) cluster_sync();
}
