// SPDX-License-Identifier: GPL-3.0-or-later
// The product of gemm.hip for many rows on sm_90a, at about the speed of NVIDIA's library, with the epilogues
// that the library lacks: out[m][n] = activation(sum over k of a[m][k] b[n][k] + bias + residual), and
// (NORMALISE) the layer norm of each row, with gammas and betas. CPU fibers and other targets cannot run it.
//
// a: [m][k] and b: weights [n][k] are tensor maps (boxes of BLOCK_M x 64 and BLOCK_N x 64, 128-byte swizzle);
// k is a multiple of 8 and above 192, n a multiple of 32. bias, gammas, betas: float [n]. residual, out: rows
// of ldo elements; they may be the same.
//
// FORMAT: a and b hold pairs of e4m3 numbers as elements, k counts pairs (e4m3.h). Sums are multiplied by
// `scale`, those of the first `first_columns` columns, a multiple of 8, by `first_scale`. (The unit
// accumulates with about 14 bits; the numbers have 4.) ROUND: the results times round_scale go to `rounded`
// as e4m3 numbers, rows of ldo. KEEP: they also go to out.
//
// There are three warpgroups: the first is the producer (hopper_tiles.h), the others are the consumers, which
// multiply a tile in halves (hopper_halves.h) to hide its epilogue. The epilogue takes a fifth of the time of
// the tile's products (k = 1024, mish).
//
// A cluster of CLUSTER_M x CLUSTER_N blocks works on neighbouring tiles: a tile of a is multicast to a row of
// blocks, one of b to a column. NORMALISE: CLUSTER_N * BLOCK_N is n, so that a cluster owns whole rows; its
// blocks exchange mean and squared deviations of their part of each row. Or ROW_BLOCKS neighbouring blocks of
// several clusters do so via global memory: an H200 holds 30 clusters of 4 blocks, but 33 times 4 blocks (n
// 1024: 75 and 68 us). Waiting for each other ends even next to another such kernel: blocks start in order,
// so at most one group of each kernel is partially resident, and complete groups end.
//
// The order of b's rows in shared memory gives each thread accumulators of 8 neighbouring columns, 16 bytes
// to load and store: row 32 J + 8 j + 2 q + e of the tile holds column 32 J + 8 q + 2 j + e. The tensor map
// does that at no cost (plan/products/tensor_maps.py).
//
// Grid: a multiple of the cluster, at most the number of resident blocks. A thread has 168 registers at the
// start, then 40 in the producer and 232 in the consumers.
//
// Barriers of the pipeline have no release at cluster scope, which would need a fence of all memory, stores
// included. With one in `barrier_wait` and `barrier_arrive_in_cluster_if` this ran at 547 TFLOP/s instead of
// 640 (n 3072, k 1024).
#include "activation.h"
#include "hopper_halves.h"

constexpr int THREADS = 3 * WARPGROUP;
constexpr bool VIA_GLOBAL = NORMALISE && ROW_BLOCKS > CLUSTER_N;
constexpr int VECTORS = NORMALISE ? 3 : 1;         // bias; gammas, betas
constexpr int VECTOR_BUFFERS = NORMALISE ? 1 : 2;  // with a norm every tile of a block has the same columns
constexpr int VECTOR_FLOATS = VECTORS * BLOCK_N;
// Offsets in shared memory, in bytes. There are two exchange buffers per consumer warpgroup.
constexpr int EXCHANGE_BARRIERS = PIPELINE_END;
// [2 warpgroups][VECTOR_BUFFERS][VECTOR_FLOATS] floats
constexpr int COLUMN_VECTORS = EXCHANGE_BARRIERS + 8 * 4;
// [2 warpgroups][2 buffers][2 * CLUSTER_N halves of tiles][64 rows] x (mean, squared deviations)
constexpr int STATISTICS = COLUMN_VECTORS + 2 * VECTOR_BUFFERS * VECTOR_FLOATS * 4;

// --- producer ---

DEVICE void load(const TensorMap& a, const TensorMap& b, const Element* residual, uint32 shared, int m, int n,
                 int k, int ldo) {
  const int steps = k_steps(k);
  const auto load_b = [&](uint32 to, uint32 full_barrier, int x, int n0, auto... multicast_mask) {
    tma_load_5d(to, b, full_barrier, x, n0 / 32, multicast_mask...);
  };
  load_tiles(make_tile_scheduler(m, n), a, shared, steps, load_b, [&](const TileCoord& coord, int step) {
#if RESIDUAL
    // Each step prefetches a part of the residual into the L2 cache, where the epilogue reads it.
    __syncwarp();
    constexpr int LINE = 64, LINES = BLOCK_N / LINE;
    for (int index = step * WAVE + thread_index() % WAVE; index < BLOCK_M * LINES; index += steps * WAVE) {
      const int row = coord.m0 + index / LINES, column = coord.n0 + index % LINES * LINE;
      if (row < m && column < n) prefetch_to_l2(residual + (uint64)row * ldo + column);
    }
#endif
  });
}

// --- epilogue of half a tile: HALF_N columns, of which a thread has 8 of each 32, in two rows ---

// Arguments of the epilogue. A row group is the warpgroups of ROW_BLOCKS blocks that have the same 64 rows.
struct Epilogue {
  const float* bias;
  const Element* residual;
  const float* gammas;
  const float* betas;
  Element* out;
  int m, n, ldo;
  float epsilon;
  float scale, first_scale;
  int first_columns;
  char* rounded;
  float round_scale;
  float2* statistics;  // VIA_GLOBAL: [row groups][2 buffers][2 * ROW_BLOCKS][64 rows]
  uint32* counters;    // VIA_GLOBAL: [row groups][arrived, left], 0 between launches
};

// A thread's place in half a tile: its first row (the other is 8 below) and first column in out, and the
// column vectors from that column on, in shared memory.
struct OutputTile {
  int row, column;
  const float* vectors;
};

DEVICE uint32 pack(float low, float high) {
  uint32 pair;
#if defined(ELEMENT_BF16)
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
#else
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
#endif
  return pair;
}
DEVICE float quad_sum(float x) {
  x += wave_xor(x, 1);
  return x + wave_xor(x, 2);
}

// The accumulators of a thread's 8 columns from column 32 J of the half tile on, in its upper (half 0) or
// lower row.
DEVICE void gather(float (&x)[8], const float (&c)[HALF_N / 2], int J, int half) {
#pragma unroll
  for (int i = 0; i < 8; i++) x[i] = c[16 * J + i / 2 * 4 + 2 * half + i % 2];
}
DEVICE void scatter(float (&c)[HALF_N / 2], const float (&x)[8], int J, int half) {
#pragma unroll
  for (int i = 0; i < 8; i++) c[16 * J + i / 2 * 4 + 2 * half + i % 2] = x[i];
}

struct Residuals {
  Bits128 chunk[HALF_N / 32][2];
};
// Residuals of `count` times 32 columns, from 32 * first on; the columns below are counted in the same way.
DEVICE void load_residuals(Residuals& to, const Epilogue& epilogue, const OutputTile& tile, int first,
                           int count) {
#if RESIDUAL
#pragma unroll
  for (int J = first; J < first + count; J++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int row = tile.row + 8 * half, column = tile.column + 32 * J;
      to.chunk[J][half] = load_if(epilogue.residual + (uint64)row * epilogue.ldo + column,
                                  row < epilogue.m && column < epilogue.n);
    }
#endif
}

// Scale, bias, residual and activation of a thread's 8 columns from 32 J on in one row.
DEVICE void epilogue_op(float (&x)[8], const Epilogue& epilogue, const OutputTile& tile,
                        const Residuals& residuals, int J, int half) {
#if FORMAT == E4M3
  const float scale = tile.column + 32 * J < epilogue.first_columns ? epilogue.first_scale : epilogue.scale;
#pragma unroll
  for (int i = 0; i < 8; i++) x[i] *= scale;
#endif
#if BIAS
  float bias[8];
  read_floats(bias, tile.vectors + 32 * J);
#pragma unroll
  for (int i = 0; i < 8; i++) x[i] += bias[i];
#endif
#if RESIDUAL
  float skip[8];
  read_chunk(skip, (const Element*)&residuals.chunk[J][half]);
#pragma unroll
  for (int i = 0; i < 8; i++) x[i] += skip[i];
#endif
  activate_all<ACTIVATION>(x);
}

DEVICE void epilogue_store(const float (&x)[8], const Epilogue& epilogue, int row, int column) {
  const uint64 at = (uint64)row * epilogue.ldo + column;
  const bool inside = row < epilogue.m && column < epilogue.n;
#if KEEP
  const Bits128 bits = {{pack(x[0], x[1]), pack(x[2], x[3]), pack(x[4], x[5]), pack(x[6], x[7])}};
  store_if(epilogue.out + at, bits, inside);
#endif
#if ROUND == E4M3
  store_if(epilogue.rounded + at, e4m3_chunk(x, epilogue.round_scale), inside);
#endif
}

// Without a norm: the whole epilogue of some columns.
DEVICE void epilogue_columns(const float (&c)[HALF_N / 2], const Epilogue& epilogue, const OutputTile& tile,
                             const Residuals& residuals, int first, int count) {
#pragma unroll
  for (int J = first; J < first + count; J++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float x[8];
      gather(x, c, J, half);
      epilogue_op(x, epilogue, tile, residuals, J, half);
      epilogue_store(x, epilogue, tile.row + 8 * half, tile.column + 32 * J);
    }
}

// With a norm: the epilogue before it for some columns, kept in the accumulators, and the sums of both rows.
DEVICE void epilogue_before_norm(float (&c)[HALF_N / 2], float (&sums)[2], const Epilogue& epilogue,
                                 const OutputTile& tile, const Residuals& residuals, int first, int count) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    if (first == 0) sums[half] = 0.0f;
#pragma unroll
    for (int J = first; J < first + count; J++) {
      float x[8];
      gather(x, c, J, half);
      epilogue_op(x, epilogue, tile, residuals, J, half);
#pragma unroll
      for (int i = 0; i < 8; i++) sums[half] += x[i];
      scatter(c, x, J, half);
    }
  }
}

// The means of a thread's two rows, and the factors that normalise them.
struct RowNorms {
  float means[2], scales[2];
};
// With a norm: the norm itself, and the store.
DEVICE void epilogue_norm(const float (&c)[HALF_N / 2], const Epilogue& epilogue, const OutputTile& tile,
                          const RowNorms& norms) {
#pragma unroll
  for (int J = 0; J < HALF_N / 32; J++) {
    float gammas[8], betas[8];
    read_floats(gammas, tile.vectors + BLOCK_N + 32 * J);
    read_floats(betas, tile.vectors + 2 * BLOCK_N + 32 * J);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float x[8];
      gather(x, c, J, half);
#pragma unroll
      for (int i = 0; i < 8; i++)
        x[i] = (x[i] - norms.means[half]) * norms.scales[half] * gammas[i] + betas[i];
      epilogue_store(x, epilogue, tile.row + 8 * half, tile.column + 32 * J);
    }
  }
}

// --- exchange of row statistics between blocks with columns of the same rows ---

// A thread's side of the exchange for one tile. Consecutive tiles alternate between two buffers.
struct Exchange {
  char* memory;
  uint32 shared;
  int local_row, column_block;
  int round;           // index of the tile among the block's
  int buffer;          // 2 * warpgroup + round % 2
  float2* statistics;  // VIA_GLOBAL: of the row group
  uint32* counters;    // VIA_GLOBAL: of the row group
};

// Sends each row's mean over HALF_N columns and its squared deviations to all blocks of the cluster, or
// (VIA_GLOBAL) to memory. sums: of this thread's columns. part: index of the HALF_N columns in the row.
DEVICE void send_statistics(const float (&c)[HALF_N / 2], const float (&sums)[2], const Exchange& exchange,
                            int part) {
  const int buffer = exchange.buffer;
  const uint32 to =
      exchange.shared + STATISTICS + (buffer * 2 * CLUSTER_N + part) * 64 * 8 + 8 * exchange.local_row;
  float means[2], squares[2] = {0.0f, 0.0f};
#pragma unroll
  for (int half = 0; half < 2; half++) means[half] = quad_sum(sums[half]) * (1.0f / HALF_N);
#pragma unroll
  for (int i = 0; i < HALF_N / 2; i++) {
    const float deviation = c[i] - means[i / 2 % 2];
    squares[i / 2 % 2] += deviation * deviation;
  }
#pragma unroll
  for (int half = 0; half < 2; half++) {
    squares[half] = quad_sum(squares[half]);
    if constexpr (VIA_GLOBAL) {
      if (thread_index() % 4 == 0)
        store_to_l2(
            exchange.statistics + (buffer % 2 * 2 * ROW_BLOCKS + part) * 64 + exchange.local_row + 8 * half,
            means[half], squares[half]);
      continue;
    }
    for (uint32 block = thread_index() % 4; block < CLUSTER_N; block += 4)
      store_pair_in_cluster(to + 8 * 8 * half, exchange.shared + EXCHANGE_BARRIERS + 8 * buffer, block,
                            means[half], squares[half]);
  }
}

// Waits for the statistics of all blocks.
DEVICE void wait_for_statistics(const Exchange& exchange) {
  if constexpr (VIA_GLOBAL) {
    const int warpgroup = exchange.buffer / 2;
    named_barrier_sync(1 + warpgroup, WARPGROUP);
    if (thread_index() % WARPGROUP == 0) {
      arrive_in_global(exchange.counters);
      wait_in_global(exchange.counters, ROW_BLOCKS * (exchange.round + 1));
    }
    named_barrier_sync(1 + warpgroup, WARPGROUP);
  } else {
    barrier_wait(exchange.shared + EXCHANGE_BARRIERS + 8 * exchange.buffer, exchange.round / 2 % 2);
  }
}

// Combines the statistics of the parts of each row (Chan, Golub and LeVeque 1979).
DEVICE void receive_statistics(RowNorms& norms, const Exchange& exchange, float epsilon) {
  constexpr int PARTS = VIA_GLOBAL ? 2 * ROW_BLOCKS : 2 * CLUSTER_N;
  const int buffer = exchange.buffer;
  wait_for_statistics(exchange);
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float2 part[PARTS];
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
      if constexpr (VIA_GLOBAL)
        part[i] =
            load_from_l2(exchange.statistics + (buffer % 2 * PARTS + i) * 64 + exchange.local_row + 8 * half);
      else
        part[i] = ((const float2*)(exchange.memory +
                                   STATISTICS))[(buffer * PARTS + i) * 64 + exchange.local_row + 8 * half];
    }
    float sum = 0.0f, total = 0.0f;
#pragma unroll
    for (int i = 0; i < PARTS; i++) sum += part[i].x;
    norms.means[half] = sum * (1.0f / PARTS);
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
      const float deviation = part[i].x - norms.means[half];
      total += part[i].y + HALF_N * deviation * deviation;
    }
    norms.scales[half] = reciprocal_sqrt(total * (1.0f / (HALF_N * PARTS)) + epsilon);
  }
}

// --- consumers ---

// Bias, gammas and betas of a tile's columns: loaded early into registers, stored late to shared memory.
struct ColumnVectors {
  float value[VECTORS][BLOCK_N / WARPGROUP];
};
DEVICE ColumnVectors load_column_vectors(const Epilogue& epilogue, int n0) {
  ColumnVectors vectors;
#pragma unroll
  for (int i = 0; i < BLOCK_N / WARPGROUP; i++) {
    const int column = n0 + thread_index() % WARPGROUP + i * WARPGROUP;
    vectors.value[0][i] = BIAS && column < epilogue.n ? epilogue.bias[column] : 0.0f;
#if NORMALISE
    vectors.value[1][i] = epilogue.gammas[column];
    vectors.value[2][i] = epilogue.betas[column];
#endif
  }
  return vectors;
}
DEVICE void store_column_vectors(float* to, const ColumnVectors& vectors) {
#pragma unroll
  for (int v = 0; v < VECTORS; v++)
#pragma unroll
    for (int i = 0; i < BLOCK_N / WARPGROUP; i++)
      to[v * BLOCK_N + thread_index() % WARPGROUP + i * WARPGROUP] = vectors.value[v][i];
}

// One tile of a consumer: accumulators of both halves of its columns, and operands of its epilogue.
struct Tile {
  float low[HALF_N / 2], high[HALF_N / 2];
  Residuals residuals;
  RowNorms norms;
};

// The lower half's epilogue, during the last OVERLAP steps of the upper half, and, with a norm, the part of
// the upper half's before the norm. Releases the stages `acquired` by those steps.
DEVICE void epilogue_lower(Tile& tile, const OutputTile& lower, const OutputTile& upper,
                           const Epilogue& epilogue, const Consumer& consumer,
                           const PipelineState (&acquired)[OVERLAP]) {
  epilogue_columns(tile.low, epilogue, lower, tile.residuals, 0, HALF_N / 64);
  wgmma_wait<1>();
#pragma unroll
  for (int i = 0; i < OVERLAP - 1; i++) consumer_release(consumer, acquired[i]);
  epilogue_columns(tile.low, epilogue, lower, tile.residuals, HALF_N / 64, HALF_N / 64);
  load_residuals(tile.residuals, epilogue, upper, 0, HALF_N / 32);
  wgmma_wait<0>();
  consumer_release(consumer, acquired[OVERLAP - 1]);
}
DEVICE void epilogue_lower_norm(Tile& tile, const OutputTile& lower, const OutputTile& upper,
                                const Epilogue& epilogue, const Consumer& consumer,
                                const PipelineState (&acquired)[OVERLAP], const Exchange& exchange) {
  if (!VIA_GLOBAL && thread_index() % WARPGROUP == 0)
    barrier_arrive_expect(consumer.shared + EXCHANGE_BARRIERS + 8 * exchange.buffer, 64 * 2 * CLUSTER_N * 8);
  float sums[2];
  epilogue_before_norm(tile.low, sums, epilogue, lower, tile.residuals, 0, HALF_N / 64);
  wgmma_wait<1>();
#pragma unroll
  for (int i = 0; i < OVERLAP - 1; i++) consumer_release(consumer, acquired[i]);
  load_residuals(tile.residuals, epilogue, upper, 0, HALF_N / 64);
  epilogue_before_norm(tile.low, sums, epilogue, lower, tile.residuals, HALF_N / 64, HALF_N / 64);
  load_residuals(tile.residuals, epilogue, upper, HALF_N / 64, HALF_N / 64);
  send_statistics(tile.low, sums, exchange, 2 * exchange.column_block);
  wgmma_wait<0>();
  consumer_release(consumer, acquired[OVERLAP - 1]);
  epilogue_before_norm(tile.high, sums, epilogue, upper, tile.residuals, 0, HALF_N / 32);
  send_statistics(tile.high, sums, exchange, 2 * exchange.column_block + 1);
  receive_statistics(tile.norms, exchange, epilogue.epsilon);
  epilogue_norm(tile.low, epilogue, lower, tile.norms);
}
// The rest of the upper half's epilogue, during the next tile's first steps.
DEVICE void epilogue_upper(const Tile& tile, const OutputTile& upper, const Epilogue& epilogue) {
  if constexpr (NORMALISE)
    epilogue_norm(tile.high, epilogue, upper, tile.norms);
  else
    epilogue_columns(tile.high, epilogue, upper, tile.residuals, 0, HALF_N / 32);
}

DEVICE void multiply(const Epilogue& epilogue, char* memory, uint32 shared, int k) {
  const TileScheduler scheduler = make_tile_scheduler(epilogue.m, epilogue.n);
  int index = scheduler.first;
  if (index >= scheduler.count) return;
  const int steps = k_steps(k);
  const Consumer consumer = make_consumer(shared, scheduler);
  const int warpgroup = consumer.warpgroup, thread = thread_index() % WARPGROUP;
  const int local_row = thread / WAVE * 16 + thread % WAVE / 4, local_column = thread % 4 * 8;
  float* const all_vectors = (float*)(memory + COLUMN_VECTORS) + warpgroup * VECTOR_BUFFERS * VECTOR_FLOATS;
  Tile tile;
  PipelineState read = {0, 0}, acquired[OVERLAP];
  TileCoord coord = tile_coord(scheduler, index);
  ColumnVectors vectors = load_column_vectors(epilogue, coord.n0);
  if constexpr (VECTOR_BUFFERS == 1) store_column_vectors(all_vectors, vectors);

  mma_head_lower(tile.low, acquired, read, consumer);
  mma_head_upper(tile.high, acquired, consumer);
  for (int round = 0;; round++) {
    float* const tile_vectors = all_vectors + round % VECTOR_BUFFERS * VECTOR_FLOATS;
    if constexpr (VECTOR_BUFFERS == 2) store_column_vectors(tile_vectors, vectors);
    mma_mainloop(tile.low, tile.high, acquired[OVERLAP - 1], read, steps, consumer);

    const OutputTile lower = {coord.m0 + 64 * warpgroup + local_row, coord.n0 + local_column,
                              tile_vectors + local_column};
    const OutputTile upper = {lower.row, lower.column + HALF_N, lower.vectors + HALF_N};
    load_residuals(tile.residuals, epilogue, lower, 0, HALF_N / 32);
    PipelineState last[OVERLAP];
    mma_tail(tile.low, tile.high, acquired[OVERLAP - 1], last, read, consumer);
    named_barrier_sync(1 + warpgroup, WARPGROUP);  // the column vectors are stored
    wgmma_wait<OVERLAP>();
    const int buffer = 2 * warpgroup + round % 2;
    const int column_block = VIA_GLOBAL ? coord.n0 / BLOCK_N : scheduler.cluster_column;
    const int row_group = 2 * (scheduler.first / scheduler.tiles_n) + warpgroup;
    uint32* const counters = epilogue.counters + 2 * row_group;
    if constexpr (NORMALISE) {
      float2* const statistics = epilogue.statistics + row_group * 2 * 2 * ROW_BLOCKS * 64;
      const Exchange exchange = {memory, shared, local_row,  column_block,
                                 round,  buffer, statistics, counters};
      epilogue_lower_norm(tile, lower, upper, epilogue, consumer, last, exchange);
    } else {
      epilogue_lower(tile, lower, upper, epilogue, consumer, last);
    }
    index += scheduler.stride;
    if (index >= scheduler.count) {
      if (VIA_GLOBAL && thread == 0) leave_in_global(counters, ROW_BLOCKS);
      epilogue_upper(tile, upper, epilogue);
      return;
    }
    coord = tile_coord(scheduler, index);
    if constexpr (VECTOR_BUFFERS == 2) vectors = load_column_vectors(epilogue, coord.n0);
    mma_head_lower(tile.low, acquired, read, consumer);
    epilogue_upper(tile, upper, epilogue);
    mma_head_upper(tile.high, acquired, consumer);
  }
}

// Each thread is launched with 168 registers. With a residual but no norm, 232 are one too few for a
// consumer; with a norm, 24 are too few for the producer of a cluster.
constexpr int PRODUCER_REGISTERS = RESIDUAL && !NORMALISE ? 24 : 40;
constexpr int CONSUMER_REGISTERS = RESIDUAL && !NORMALISE ? 240 : 232;

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1)
    gemm_hopper(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, const float* bias,
                const Element* residual, const float* gammas, const float* betas, Element* out, int m, int n,
                int k, int ldo, float epsilon, float scale, float first_scale, int first_columns,
                char* rounded, float round_scale, float2* statistics, uint32* counters) {
  DYNAMIC_SHARED(memory);
  const uint32 shared = shared_address(memory);
  if (thread_index() == 0) {
    tma_prefetch_descriptor(a);
    tma_prefetch_descriptor(b);
    init_pipeline(shared);
    for (int i = 0; i < 4; i++) barrier_init(shared + EXCHANGE_BARRIERS + 8 * i, 1);
    barrier_init_fence();
  }
  if constexpr (CLUSTER > 1)
    cluster_sync();
  else
    block_sync();
  start_kernel();
  wait_for_previous_kernel();
  if (thread_index() < WARPGROUP) {
    warpgroup_reg_dealloc<PRODUCER_REGISTERS>();
    if (thread_index() < WAVE) load(a, b, residual, shared, m, n, k, ldo);
  } else {
    warpgroup_reg_alloc<CONSUMER_REGISTERS>();
    multiply({bias, residual, gammas, betas, out, m, n, ldo, epsilon, scale, first_scale, first_columns,
              rounded, round_scale, statistics, counters},
             memory, shared, k);
  }
  // A block must not end while others of its cluster may still write to its shared memory.
  if constexpr (CLUSTER > 1) cluster_sync();
}
