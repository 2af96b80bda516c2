// SPDX-License-Identifier: GPL-3.0-or-later
// The product for q, k and v and the attention of heads of 32 over the 64 squares in one kernel, for many
// positions on sm_90a: q, k and v never leave the processor. out = softmax(q k^T + logits) v with
// q, k, v = a weights^T + bias. CPU fibers and other targets cannot run it.
//
// a: [m][k] as a tensor map (boxes of 128 x 64, 128-byte swizzle), m = 64 * positions, k a multiple of 8.
// weights: [3][heads][32][k], as a map of boxes of 64 x 32 x 3 x 2 heads. bias: float [3][heads][32];
// 1/sqrt(32) is in the weights and bias of q. logits (LOGITS): [positions * heads][64 queries][64 keys], as a
// map of boxes of 64 x 64. out: [m][heads * 32].
//
// FORMAT: a and weights hold pairs of e4m3 numbers as elements, k counts pairs (e4m3.h). Sums are multiplied
// by query_scale and by `scale`. ROUND: out holds e4m3 numbers, the results times round_scale. Attention
// itself does not change.
//
// There are four warpgroups. The first is the producer: one wave loads tiles (hopper_tiles.h), another the
// logits. Two are consumers of tiles of 2 positions and 2 heads: a warpgroup has one position, with 32
// columns each for q, k and v of one head, then of the other. It rounds its accumulators as soon as they are
// complete, and stores them to shared memory during the first step of the next tile. The fourth warpgroup
// attends to them: it has the time of a whole tile for four heads, with two products by wgmma for each. That
// is 4 % of the tile's own work, and nothing waits for its softmax. One instruction for all columns reads a
// once per step: 162 us. Halves of the columns (hopper_halves.h) would read it twice: 166 us (256 positions,
// 32 heads, k = 1024).
//
// Shared memory: the stages, q, k and v of four heads, 12 KB each, and two boxes of logits, 8 KB each: 225 KB
// with 4 stages. Grid: a multiple of the cluster, at most the number of resident blocks. A thread has 128
// registers at the start, then 32 in the producer, 176 in the consumers and still 128 in attention.
//
// Order of columns: a thread has columns 8 j + 2 q + e of a row's 32, and stores them as 8 q + 2 j + e, 16
// bytes at a time. For q and k any common order works. For v it makes column 8 j + 2 q + e of attention's
// second product the column 8 q + 2 j + e of the head: 16 bytes per thread to store.
#include "hopper_tiles.h"
#include "matrix.h"

constexpr int THREADS = 4 * WARPGROUP;
constexpr int DEPTH = 32, COLUMNS = 3 * DEPTH, HEADS = 2;
constexpr float LOG2_E = 1.4426950408889634f;
constexpr int HEAD_SLOTS = 2 * HEADS;  // slot 2 h + w: q, k and v of head h of the position of consumer w
constexpr int LOGITS_STAGES = 2;
constexpr int LOGITS_BYTES = 64 * 64 * 2, OPERAND_BYTES = 64 * DEPTH * 2, SLOT_BYTES = 3 * OPERAND_BYTES;
// Offsets in shared memory, in bytes: full and empty barriers of each slot and of each stage of logits; the
// slots; the logits.
constexpr int SLOT_FULL = PIPELINE_END, SLOT_EMPTY = SLOT_FULL + 8 * HEAD_SLOTS;
constexpr int LOGITS_FULL = SLOT_EMPTY + 8 * HEAD_SLOTS, LOGITS_EMPTY = LOGITS_FULL + 8 * LOGITS_STAGES;
constexpr int SLOTS_OFFSET = (LOGITS_EMPTY + 8 * LOGITS_STAGES + 1023) / 1024 * 1024;
constexpr int LOGITS_OFFSET = SLOTS_OFFSET + HEAD_SLOTS * SLOT_BYTES;

static_assert(BLOCK_N == HEADS * COLUMNS, "a tile is q, k and v of two heads");

DEVICE int first_head(const TileCoord& coord) {
  return coord.n0 / COLUMNS;
}

// --- producers ---

DEVICE void load(const TensorMap& a, const TensorMap& weights, const TileScheduler& scheduler, uint32 shared,
                 int k) {
  const auto load_b = [&](uint32 to, uint32 full_barrier, int x, int n0, auto... multicast_mask) {
    tma_load_4d(to, weights, full_barrier, x, n0 / COLUMNS, multicast_mask...);
  };
  load_tiles(scheduler, a, shared, k_steps(k), load_b, [](const TileCoord&, int) {});
}

// Called by one thread.
DEVICE void load_logits(const TensorMap& logits, const TileScheduler& scheduler, uint32 shared, int heads) {
  uint32 count = 0;
  for (int tile = scheduler.first; tile < scheduler.count; tile += scheduler.stride) {
    const TileCoord coord = tile_coord(scheduler, tile);
    for (int slot = 0; slot < HEAD_SLOTS; slot++, count++) {
      const uint32 stage = count % LOGITS_STAGES, full_barrier = shared + LOGITS_FULL + 8 * stage;
      const int position = coord.m0 / 64 + slot % 2, head = first_head(coord) + slot / 2;
      barrier_wait(shared + LOGITS_EMPTY + 8 * stage, count / LOGITS_STAGES % 2 ^ 1);
      barrier_arrive_expect(full_barrier, LOGITS_BYTES);
      tma_load_2d(shared + LOGITS_OFFSET + stage * LOGITS_BYTES, logits, full_barrier, 0,
                  (position * heads + head) * 64);
    }
  }
}

// --- consumers ---

// The bias of q for a thread's columns. The bias of k would add the same to all logits of a query, so it has
// no effect. The bias of v is added to the result.
struct QueryBiases {
  float2 pair[HEADS][4];
};
DEVICE QueryBiases load_query_biases(const float* bias, int first, int heads) {
  QueryBiases biases;
#pragma unroll
  for (int h = 0; h < HEADS; h++) {
    const int head =
        first + h < heads ? first + h : 0;  // an odd number of heads leaves the last tile half empty
#pragma unroll
    for (int j = 0; j < 4; j++)
      biases.pair[h][j] = load_constant_pair(bias + head * DEPTH + 8 * j + thread_index() % 4 * 2);
  }
  return biases;
}

// E4M3: factors of the sums of q, of those of k and v, and of the results before rounding.
struct Scales {
  float queries, others, results;
};

// A thread's share of q, k and v of both heads in storage precision, in the order of shared memory.
struct PackedHeads {
  Bits128 row[HEADS][3][2];
};
DEVICE PackedHeads pack_heads(const float (&c)[BLOCK_N / 2], const QueryBiases& biases,
                              const Scales& scales) {
  PackedHeads packed;
#pragma unroll
  for (int head = 0; head < HEADS; head++)
#pragma unroll
    for (int part = 0; part < 3; part++)
#pragma unroll
      for (int half = 0; half < 2; half++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
          const int at = COLUMNS / 2 * head + DEPTH / 2 * part + 4 * j + 2 * half;
          float x = c[at], y = c[at + 1];
#if FORMAT == E4M3
          x *= part == 0 ? scales.queries : scales.others;
          y *= part == 0 ? scales.queries : scales.others;
#endif
          if (part == 0) {
            x += biases.pair[head][j].x;
            y += biases.pair[head][j].y;
          }
          packed.row[head][part][half].word[j] = pack_pair(x, y);
        }
  return packed;
}
// Stores them to the slots of both heads, each once attention has read the previous content.
DEVICE void store_heads(const PackedHeads& packed, uint32 shared, int warpgroup, uint32 phase) {
  const int lane = thread_index() % WAVE, row = thread_index() % WARPGROUP / WAVE * 16 + lane / 4;
  const uint32 to = shared + SLOTS_OFFSET + row * 64 + (lane % 4 ^ row / 2 % 4) * 16;
#pragma unroll
  for (int head = 0; head < HEADS; head++) {
    const int slot = 2 * head + warpgroup;
    barrier_wait(shared + SLOT_EMPTY + 8 * slot, phase);
#pragma unroll
    for (int part = 0; part < 3; part++)
#pragma unroll
      for (int half = 0; half < 2; half++)
        store_shared(to + slot * SLOT_BYTES + part * OPERAND_BYTES + half * 8 * 64,
                     packed.row[head][part][half]);
    fence_async_proxy();
    __syncwarp();
    barrier_arrive_if(shared + SLOT_FULL + 8 * slot, lane == 0);
  }
}

DEVICE void mma_step(float (&c)[BLOCK_N / 2], const Consumer& consumer, PipelineState state,
                     bool accumulate) {
  const Descriptors of = stage_descriptors(consumer, state);
  consumer_wait(consumer, state);
  wgmma_fence();
#pragma unroll
  for (int part = 0; part < BLOCK_K / 16; part++)
    wgmma<BLOCK_N, FORMAT>(c, of.a + 2 * part, of.b + 2 * part, accumulate || part > 0);
  wgmma_commit();
}

DEVICE void multiply(const float* bias, const TileScheduler& scheduler, uint32 shared, int k, int heads,
                     const Scales& scales) {
  int tile = scheduler.first;
  if (tile >= scheduler.count) return;
  const int steps = k_steps(k);
  float c[BLOCK_N / 2];
  PackedHeads packed;
  const Consumer consumer = make_consumer(shared, scheduler);
  PipelineState read = {0, 0};
  for (uint32 phase = 0;; phase ^= 1) {
    mma_step(c, consumer, read, false);
    PipelineState in_use = read;
    read = next_state(read);
    if (tile != scheduler.first) store_heads(packed, shared, consumer.warpgroup, phase);
    for (int step = 1; step < steps; step++, read = next_state(read)) {
      mma_step(c, consumer, read, true);
      wgmma_wait<1>();
      consumer_release(consumer, in_use);
      in_use = read;
    }
    const TileCoord coord = tile_coord(scheduler, tile);
    const QueryBiases biases = load_query_biases(bias, first_head(coord), heads);
    wgmma_wait<0>();
    consumer_release(consumer, in_use);
    packed = pack_heads(c, biases, scales);
    tile += scheduler.stride;
    if (tile >= scheduler.count) {
      store_heads(packed, shared, consumer.warpgroup, phase ^ 1);
      return;
    }
  }
}

// --- attention, by the fourth warpgroup ---

// The logits of a wave's 16 queries, in the layout of wgmma's accumulators. Part c of row r is at c ^ r % 8.
DEVICE void read_logits(float (&s)[32], uint32 logits) {
  const int lane = thread_index() % WAVE, row = thread_index() % WARPGROUP / WAVE * 16 + lane % 16;
#pragma unroll
  for (int j = 0; j < 4; j++) {
    uint32 word[4];
    load_matrices(word, logits + row * 128 + ((2 * j + lane / 16) ^ row % 8) * 16);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const Element low = {(uint16)word[i]}, high = {(uint16)(word[i] >> 16)};
      s[8 * j + 2 * i] = to_float(low);
      s[8 * j + 2 * i + 1] = to_float(high);
    }
  }
}

DEVICE void attend(const float* bias, Element* out, const TileScheduler& scheduler, uint32 shared, int m,
                   int heads, const Scales& scales) {
  const int lane = thread_index() % WAVE, row = thread_index() % WARPGROUP / WAVE * 16 + lane / 4;
  uint32 phase = 0, count = 0;
  for (int tile = scheduler.first; tile < scheduler.count; tile += scheduler.stride, phase ^= 1) {
    const TileCoord coord = tile_coord(scheduler, tile);
#pragma unroll 1
    for (int slot = 0; slot < HEAD_SLOTS; slot++, count++) {
      float s[32];
#if LOGITS
      const uint32 stage = count % LOGITS_STAGES;
      barrier_wait(shared + LOGITS_FULL + 8 * stage, count / LOGITS_STAGES % 2);
      read_logits(s, shared + LOGITS_OFFSET + stage * LOGITS_BYTES);
#endif
      const uint32 at = shared + SLOTS_OFFSET + slot * SLOT_BYTES;
      const uint64 q = matrix_descriptor_64b(at), k = matrix_descriptor_64b(at + OPERAND_BYTES);
      const uint64 v = matrix_descriptor_64b(at + 2 * OPERAND_BYTES);
      const int head = first_head(coord) + slot / 2;
      float biases[8];
      read_floats(biases, bias + (2 * heads + (head < heads ? head : 0)) * DEPTH + lane % 4 * 8);
      barrier_wait(shared + SLOT_FULL + 8 * slot, phase);
      wgmma_fence();
      wgmma<64>(s, q, k, LOGITS);
      wgmma<64>(s, q + 2, k + 2, true);
      wgmma_commit();
      wgmma_wait<0>();
#if LOGITS
      // The logits are released only here, not right after issuing ldmatrix: the TMA writes a box beyond the
      // last position (all zeros) at once, and has been seen to overtake ldmatrix.
      barrier_arrive_if(shared + LOGITS_EMPTY + 8 * stage, lane == 0);
#endif

      float largest[2] = {-3.0e38f, -3.0e38f}, sum[2] = {0.0f, 0.0f};
#pragma unroll
      for (int i = 0; i < 32; i++) largest[i / 2 % 2] = maximum(largest[i / 2 % 2], s[i]);
#pragma unroll
      for (int half = 0; half < 2; half++) largest[half] = row_max(largest[half]) * LOG2_E;
#pragma unroll
      for (int i = 0; i < 32; i++) {
        s[i] = exp2_fast(s[i] * LOG2_E - largest[i / 2 % 2]);
        sum[i / 2 % 2] += s[i];
      }
      float o[16];
      uint32 weights[4][4];
#pragma unroll
      for (int i = 0; i < 16; i++) weights[i / 4][i % 4] = pack_pair(s[2 * i], s[2 * i + 1]);
      wgmma_fence();
#pragma unroll
      for (int keys = 0; keys < 4; keys++) wgmma_from_registers(o, weights[keys], v + keys * 64, keys > 0);
      wgmma_commit();
#pragma unroll
      for (int half = 0; half < 2; half++) sum[half] = divide_fast(1.0f, row_sum(sum[half]));
      wgmma_wait<0>();
      barrier_arrive_if(shared + SLOT_EMPTY + 8 * slot, lane == 0);

#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int to_row = coord.m0 + slot % 2 * 64 + row + 8 * half;
        const uint64 at = ((uint64)to_row * heads + head) * DEPTH + lane % 4 * 8;
        const bool inside = to_row < m && head < heads;
        float x[8];
#pragma unroll
        for (int i = 0; i < 8; i++) x[i] = o[i / 2 * 4 + 2 * half + i % 2] * sum[half] + biases[i];
#if ROUND == E4M3
        store_if((char*)out + at, e4m3_chunk(x, scales.results), inside);
#else
        const Bits128 bits = {
            {pack_pair(x[0], x[1]), pack_pair(x[2], x[3]), pack_pair(x[4], x[5]), pack_pair(x[6], x[7])}};
        store_if(out + at, bits, inside);
#endif
      }
    }
  }
}

extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(THREADS, 1)
    attention_hopper(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap weights,
                     const __grid_constant__ TensorMap logits, const float* bias, Element* out, int m, int k,
                     int heads, float query_scale, float scale, float round_scale) {
  DYNAMIC_SHARED(memory);
  const uint32 shared = shared_address(memory);
  if (thread_index() == 0) {
    tma_prefetch_descriptor(a);
    tma_prefetch_descriptor(weights);
    init_pipeline(shared);
    for (int i = 0; i < HEAD_SLOTS; i++) {
      barrier_init(shared + SLOT_FULL + 8 * i, WARPGROUP / WAVE);
      barrier_init(shared + SLOT_EMPTY + 8 * i, WARPGROUP / WAVE);
    }
    for (int i = 0; i < LOGITS_STAGES; i++) {
      barrier_init(shared + LOGITS_FULL + 8 * i, 1);
      barrier_init(shared + LOGITS_EMPTY + 8 * i, WARPGROUP / WAVE);
    }
    barrier_init_fence();
  }
  if constexpr (CLUSTER > 1)
    cluster_sync();
  else
    block_sync();
  start_kernel();
  wait_for_previous_kernel();
  const TileScheduler scheduler = make_tile_scheduler(m, heads * COLUMNS);
  const Scales scales = {query_scale, scale, round_scale};
  const int warpgroup = thread_index() / WARPGROUP;
  if (warpgroup == 0) {
    warpgroup_reg_dealloc<32>();
    if (thread_index() < WAVE) load(a, weights, scheduler, shared, k);
#if LOGITS
    if (thread_index() == WAVE) load_logits(logits, scheduler, shared, heads);
#endif
  } else if (warpgroup < 3) {
    warpgroup_reg_alloc<176>();
    multiply(bias, scheduler, shared, k, heads, scales);
  } else {
    attend(bias, out, scheduler, shared, m, heads, scales);
  }
  // A block must not end while others of its cluster may still write to its shared memory.
  if constexpr (CLUSTER > 1) cluster_sync();
}
