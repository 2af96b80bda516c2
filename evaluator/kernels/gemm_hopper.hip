// The product of gemm.hip for many rows on sm_90a, at about the speed of NVIDIA's library, with the ends that
// the library lacks: out[m][n] = activation(sum over k of a[m][k] b[n][k] + bias + residual), and (NORMALISE)
// the layer norm of each row, with gammas and betas. CPU fibers and other targets cannot run it.
//
// a: [m][k] and b: weights [n][k] come as tensor maps (boxes of BLOCK_M x 64 and BLOCK_N x 64, 128-byte
// swizzle); k is a multiple of 8 and above 192, n a multiple of 32. bias, gammas, betas: float [n]. residual,
// out: rows of ldo elements; they may be the same.
//
// Three groups of 4 waves. The first loads (hopper_tiles.h), the others multiply (hopper_halves.h). What is
// hidden there, the ends of a tile, takes a fifth of the time of its sums (k = 1024, mish).
//
// A cluster of CLUSTER_M x CLUSTER_N blocks works on neighbouring tiles: a tile of a goes to all of a row of
// blocks at once, one of b to all of a column, each block loading in its turn. NORMALISE: CLUSTER_N * BLOCK_N
// is n, so that a cluster owns whole rows; its blocks exchange means and squared deviations of their part. Or
// ROW_BLOCKS neighbouring blocks of several clusters do, through the L2 cache: an H200 holds 30 clusters of 4
// blocks, but 33 times 4 blocks (n 1024: 75 and 68 us). They wait for each other, which ends because all of
// the grid is resident at once: blocks start in their order, and others on the device end by themselves.
//
// The order of b's rows in shared memory is such that a thread's sums are 8 neighbouring columns, 16 bytes to
// load and store: row 32 J + 8 j + 2 q + e of the tile holds column 32 J + 8 q + 2 j + e. The tensor map does
// that at no cost (evaluator/gpu/plan/tensor_maps.py).
//
// Grid: a multiple of the cluster, at most what is resident. 168 registers at the start, then 40 and 232.
// What is not to be forgotten: a release at cluster scope costs a fence of all memory, stores included. With
// such ones in `barrier_wait` and `barrier_arrive` this ran at 547 TFLOP/s instead of 640 (n 3072, k 1024).
#include "activation.h"
#include "hopper_halves.h"

constexpr int THREADS = 3 * GROUP;
constexpr bool FAR = NORMALISE && ROW_BLOCKS > CLUSTER_N;
constexpr int VECTORS = NORMALISE ? 3 : 1;       // bias, gammas, betas
constexpr int VECTOR_TURNS = NORMALISE ? 1 : 2;  // with a norm every tile of a block has the same columns
// In shared memory, bytes.
constexpr int EXCHANGED = AFTER_STAGES;
constexpr int COLUMNS = EXCHANGED + 8 * 4;  // [2 groups][VECTOR_TURNS][VECTORS][BLOCK_N] floats
constexpr int PARTS =
    COLUMNS + 2 * VECTOR_TURNS * VECTORS * BLOCK_N * 4;  // [2][2][2 * CLUSTER_N][64 rows] x (mean, squares)

// --- loading ---

DEVICE void load(const TensorMap& a, const TensorMap& b, const Element* residual, uint32 shared, int m, int n,
                 int k, int ldo) {
  const int steps = (k + BLOCK_K - 1) / BLOCK_K;
  const auto load_b = [&](uint32 to, uint32 full, int x, int n0, auto... blocks) {
    load_box_5d(to, b, full, x, n0 / 32, blocks...);
  };
  load_tiles(tiles_of(m, n), a, shared, steps, load_b, [&](const Place& place, int step) {
#if RESIDUAL
    // It comes into the L2 cache a little with each step, and is read from there at the end of the tile.
    __syncwarp();
    constexpr int LINE = 64, LINES = BLOCK_N / LINE;
    for (int index = step * WAVE + thread_index() % WAVE; index < BLOCK_M * LINES; index += steps * WAVE) {
      const int row = place.m0 + index / LINES, column = place.n0 + index % LINES * LINE;
      if (row < m && column < n) prefetch_to_l2(residual + (uint64)row * ldo + column);
    }
#endif
  });
}

// --- the ends of a half tile: HALF columns, of which a thread has 8 of each 32, in two rows ---

struct Ends {
  const float* bias;
  const Element* residual;
  const float* gammas;
  const float* betas;
  Element* out;
  int m, n, ldo;
  float epsilon;
  float2* parts;     // [groups of ROW_BLOCKS blocks][2][2][2 * ROW_BLOCKS][64] (FAR)
  uint32* counters;  // [groups][2][arrivals, leavings], 0 between launches
};

// What a thread must know of the half tile that it ends: its first row (the other is 8 below), its first
// column in out, and where the values for the first column lie in shared memory.
struct Spot {
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

// The 8 sums of columns 32 J and on, in the upper (half 0) or lower row.
DEVICE void gather(float (&x)[8], const float (&c)[HALF / 2], int J, int half) {
#pragma unroll
  for (int i = 0; i < 8; i++) x[i] = c[16 * J + i / 2 * 4 + 2 * half + i % 2];
}
DEVICE void scatter(float (&c)[HALF / 2], const float (&x)[8], int J, int half) {
#pragma unroll
  for (int i = 0; i < 8; i++) c[16 * J + i / 2 * 4 + 2 * half + i % 2] = x[i];
}

struct Residuals {
  Bits128 chunk[HALF / 32][2];
};
DEVICE void fetch(Residuals& to, const Ends& ends, const Spot& spot, int first, int parts) {
#if RESIDUAL
#pragma unroll
  for (int J = first; J < first + parts; J++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int row = spot.row + 8 * half, column = spot.column + 32 * J;
      to.chunk[J][half] =
          load_if(ends.residual + (uint64)row * ends.ldo + column, row < ends.m && column < ends.n);
    }
#endif
}

// bias, residual and activation of columns 32 J and on in one row.
DEVICE void finish(float (&x)[8], const Spot& spot, const Residuals& residuals, int J, int half) {
#if BIAS
  float bias[8];
  read_floats(bias, spot.vectors + 32 * J);
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

DEVICE void store(const float (&x)[8], const Ends& ends, int row, int column) {
  const Bits128 bits = {{pack(x[0], x[1]), pack(x[2], x[3]), pack(x[4], x[5]), pack(x[6], x[7])}};
  store_if(ends.out + (uint64)row * ends.ldo + column, bits, row < ends.m && column < ends.n);
}

// Without a norm: `parts` out of the HALF / 32 from `first` on, complete.
DEVICE void end_parts(const float (&c)[HALF / 2], const Ends& ends, const Spot& spot,
                      const Residuals& residuals, int first, int parts) {
#pragma unroll
  for (int J = first; J < first + parts; J++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float x[8];
      gather(x, c, J, half);
      finish(x, spot, residuals, J, half);
      store(x, ends, spot.row + 8 * half, spot.column + 32 * J);
    }
}

// With a norm: what comes before it, adding up both rows; then the norm.
DEVICE void before_norm(float (&c)[HALF / 2], float (&sums)[2], const Spot& spot, const Residuals& residuals,
                        int first, int parts) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    if (first == 0) sums[half] = 0.0f;
#pragma unroll
    for (int J = first; J < first + parts; J++) {
      float x[8];
      gather(x, c, J, half);
      finish(x, spot, residuals, J, half);
#pragma unroll
      for (int i = 0; i < 8; i++) sums[half] += x[i];
      scatter(c, x, J, half);
    }
  }
}
DEVICE void end_norm(const float (&c)[HALF / 2], const Ends& ends, const Spot& spot, const float (&means)[2],
                     const float (&scales)[2]) {
#pragma unroll
  for (int J = 0; J < HALF / 32; J++) {
    float gammas[8], betas[8];
    read_floats(gammas, spot.vectors + BLOCK_N + 32 * J);
    read_floats(betas, spot.vectors + 2 * BLOCK_N + 32 * J);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float x[8];
      gather(x, c, J, half);
#pragma unroll
      for (int i = 0; i < 8; i++) x[i] = (x[i] - means[half]) * scales[half] * gammas[i] + betas[i];
      store(x, ends, spot.row + 8 * half, spot.column + 32 * J);
    }
  }
}

// Each row's mean over HALF columns and its squared deviations, to all blocks of the cluster, or (FAR) to
// memory. which: of the exchange's buffers; part: of the row, the HALF columns.
DEVICE void send(const float (&c)[HALF / 2], float (&sums)[2], uint32 shared, int which, int local_row,
                 int part, float2* far) {
  const uint32 to = shared + PARTS + (which * 2 * CLUSTER_N + part) * 64 * 8 + 8 * local_row;
  float means[2], squares[2] = {0.0f, 0.0f};
#pragma unroll
  for (int half = 0; half < 2; half++) means[half] = quad_sum(sums[half]) * (1.0f / HALF);
#pragma unroll
  for (int i = 0; i < HALF / 2; i++) {
    const float apart = c[i] - means[i / 2 % 2];
    squares[i / 2 % 2] += apart * apart;
  }
#pragma unroll
  for (int half = 0; half < 2; half++) {
    squares[half] = quad_sum(squares[half]);
    if constexpr (FAR) {
      if (thread_index() % 4 == 0)
        store_to_l2(far + (which % 2 * 2 * ROW_BLOCKS + part) * 64 + local_row + 8 * half, means[half],
                    squares[half]);
      continue;
    }
    for (uint32 block = thread_index() % 4; block < CLUSTER_N; block += 4)
      store_pair(to + 8 * 8 * half, shared + EXCHANGED + 8 * which, block, means[half], squares[half]);
  }
}
// The means of whole rows and one over their deviations (Chan, Golub and LeVeque 1979).
DEVICE void receive(float (&means)[2], float (&scales)[2], const char* memory, uint32 shared, int which,
                    uint32 phase, int local_row, float epsilon, const float2* far, uint32* arrivals,
                    int round) {
  constexpr int COUNT = FAR ? 2 * ROW_BLOCKS : 2 * CLUSTER_N;
  if constexpr (FAR) {
    const int group = which / 2;
    named_sync(1 + group, GROUP);
    if (thread_index() % GROUP == 0) {
      arrive_far(arrivals);
      wait_far(arrivals, ROW_BLOCKS * (round + 1));
    }
    named_sync(1 + group, GROUP);
  } else {
    barrier_wait(shared + EXCHANGED + 8 * which, phase);
  }
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float2 part[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      if constexpr (FAR)
        part[i] = load_from_l2(far + (which % 2 * COUNT + i) * 64 + local_row + 8 * half);
      else
        part[i] = ((const float2*)(memory + PARTS))[(which * COUNT + i) * 64 + local_row + 8 * half];
    }
    float sum = 0.0f, total = 0.0f;
#pragma unroll
    for (int i = 0; i < COUNT; i++) sum += part[i].x;
    means[half] = sum * (1.0f / COUNT);
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      const float apart = part[i].x - means[half];
      total += part[i].y + HALF * apart * apart;
    }
    scales[half] = reciprocal_sqrt(total * (1.0f / (HALF * COUNT)) + epsilon);
  }
}

// --- multiplying ---

// What is left to do for the upper half when the next tile has begun.
DEVICE void end_upper(const float (&high)[HALF / 2], const Ends& ends, const Spot& spot,
                      const Residuals& residuals, const float (&means)[2], const float (&scales)[2]) {
#if NORMALISE
  end_norm(high, ends, spot, means, scales);
#else
  end_parts(high, ends, spot, residuals, 0, HALF / 32);
#endif
}

// The values of a tile's columns, fetched early and put into shared memory late.
struct Vectors {
  float value[VECTORS][BLOCK_N / GROUP];
};
DEVICE Vectors fetch_vectors(const Ends& ends, int n0) {
  Vectors vectors;
#pragma unroll
  for (int i = 0; i < BLOCK_N / GROUP; i++) {
    const int column = n0 + thread_index() % GROUP + i * GROUP;
    vectors.value[0][i] = BIAS && column < ends.n ? ends.bias[column] : 0.0f;
#if NORMALISE
    vectors.value[1][i] = ends.gammas[column];
    vectors.value[2][i] = ends.betas[column];
#endif
  }
  return vectors;
}
DEVICE void put_vectors(float* to, const Vectors& vectors) {
#pragma unroll
  for (int v = 0; v < VECTORS; v++)
#pragma unroll
    for (int i = 0; i < BLOCK_N / GROUP; i++)
      to[v * BLOCK_N + thread_index() % GROUP + i * GROUP] = vectors.value[v][i];
}

DEVICE void multiply(const Ends& ends, char* memory, uint32 shared, int k) {
  const Tiles tiles = tiles_of(ends.m, ends.n);
  int tile = tiles.first;
  if (tile >= tiles.count) return;
  const int steps = (k + BLOCK_K - 1) / BLOCK_K;
  const int group = thread_index() / GROUP - 1, thread = thread_index() % GROUP;
  const int local_row = thread / WAVE * 16 + thread % WAVE / 4, eighth = thread % 4 * 8;
  float* const columns = (float*)(memory + COLUMNS) + group * VECTOR_TURNS * VECTORS * BLOCK_N;
  float low[HALF / 2], high[HALF / 2];
  float means[2] = {0.0f, 0.0f}, scales[2] = {0.0f, 0.0f};
  Turn turn = {0, 0}, held[OVERLAP];
  Place place = place_of(tiles, tile);
  Vectors vectors = fetch_vectors(ends, place.n0);
  if constexpr (VECTOR_TURNS == 1) put_vectors(columns, vectors);

  begin_lower(low, held, turn, shared, group);
  begin_upper(high, held, shared, group, tiles);
  for (int round = 0;; round++) {
    float* const spots = columns + round % VECTOR_TURNS * VECTORS * BLOCK_N;
    if constexpr (VECTOR_TURNS == 2) put_vectors(spots, vectors);
    multiply_middle(low, high, held[OVERLAP - 1], turn, steps, shared, group, tiles);

    const Spot lower = {place.m0 + 64 * group + local_row, place.n0 + eighth, spots + eighth};
    const Spot upper = {lower.row, lower.column + HALF, lower.vectors + HALF};
    Residuals residuals;
    fetch(residuals, ends, lower, 0, HALF / 32);
    Turn ending[OVERLAP];
    end_tile(low, high, held[OVERLAP - 1], ending, turn, shared, group, tiles);
    named_sync(1 + group, GROUP);  // the vectors are there
    wgmma_wait<OVERLAP>();
#if NORMALISE
    const int which = 2 * group + round % 2;
    const int column_block = FAR ? place.n0 / BLOCK_N : tiles.column;
    const int team = 2 * (tiles.first / tiles.across) + group;
    float2* far = ends.parts + team * 2 * 2 * ROW_BLOCKS * 64;
    uint32* arrivals = ends.counters + 2 * team;
    if (!FAR && thread == 0) barrier_expect(shared + EXCHANGED + 8 * which, 64 * 2 * CLUSTER_N * 8);
    before_norm(low, means, lower, residuals, 0, HALF / 64);
    wgmma_wait<1>();
#pragma unroll
    for (int i = 0; i < OVERLAP - 1; i++) release(shared, ending[i], tiles);
    fetch(residuals, ends, upper, 0, HALF / 64);
    before_norm(low, means, lower, residuals, HALF / 64, HALF / 64);
    fetch(residuals, ends, upper, HALF / 64, HALF / 64);
    send(low, means, shared, which, local_row, 2 * column_block, far);
    wgmma_wait<0>();
    release(shared, ending[OVERLAP - 1], tiles);
    before_norm(high, means, upper, residuals, 0, HALF / 32);
    send(high, means, shared, which, local_row, 2 * column_block + 1, far);
    receive(means, scales, memory, shared, which, round / 2 % 2, local_row, ends.epsilon, far, arrivals,
            round);
    end_norm(low, ends, lower, means, scales);
#else
    end_parts(low, ends, lower, residuals, 0, HALF / 64);
    wgmma_wait<1>();
#pragma unroll
    for (int i = 0; i < OVERLAP - 1; i++) release(shared, ending[i], tiles);
    end_parts(low, ends, lower, residuals, HALF / 64, HALF / 64);
    fetch(residuals, ends, upper, 0, HALF / 32);
    wgmma_wait<0>();
    release(shared, ending[OVERLAP - 1], tiles);
#endif
    tile += tiles.stride;
    if (tile >= tiles.count) {
#if NORMALISE
      if (FAR && thread == 0) leave_far(arrivals, ROW_BLOCKS);
#endif
      end_upper(high, ends, upper, residuals, means, scales);
      return;
    }
    place = place_of(tiles, tile);
    if constexpr (VECTOR_TURNS == 2) vectors = fetch_vectors(ends, place.n0);
    begin_lower(low, held, turn, shared, group);
    end_upper(high, ends, upper, residuals, means, scales);
    begin_upper(high, held, shared, group, tiles);
  }
}

// Of the 168 that each thread is launched with. A residual without a norm spills one of 232, and loading with
// a norm's clusters one of 24.
constexpr int REGISTERS_TO_LOAD = RESIDUAL && !NORMALISE ? 24 : 40;
constexpr int REGISTERS_TO_MULTIPLY = RESIDUAL && !NORMALISE ? 240 : 232;

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1)
    gemm_hopper(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, const float* bias,
                const Element* residual, const float* gammas, const float* betas, Element* out, int m, int n,
                int k, int ldo, float epsilon, float2* parts, uint32* counters) {
  DYNAMIC_SHARED(memory);
  const uint32 shared = shared_address(memory);
  if (thread_index() == 0) {
    prefetch_map(a);
    prefetch_map(b);
    init_stages(shared);
    for (int i = 0; i < 4; i++) barrier_init(shared + EXCHANGED + 8 * i, 1);
    barrier_init_done();
  }
  if constexpr (CLUSTER > 1)
    cluster_sync();
  else
    block_sync();
  start_kernel();
  wait_for_previous_kernel();
  if (thread_index() < GROUP) {
    fewer_registers<REGISTERS_TO_LOAD>();
    if (thread_index() < WAVE) load(a, b, residual, shared, m, n, k, ldo);
  } else {
    more_registers<REGISTERS_TO_MULTIPLY>();
    multiply({bias, residual, gammas, betas, out, m, n, ldo, epsilon, parts, counters}, memory, shared, k);
  }
  // A block must not end while others of its cluster may still write to its shared memory.
  if constexpr (CLUSTER > 1) cluster_sync();
}
