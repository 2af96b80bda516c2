// SPDX-License-Identifier: GPL-3.0-or-later
// Common parts of the products on sm_90a: the tile scheduler of a grid of clusters, and the pipeline of
// stages in shared memory through which the tiles of both operands are loaded. A kernel that includes this is
// compiled for a BLOCK_N, STAGES, CLUSTER_M and CLUSTER_N.
//
// One producer thread makes the TMA fill the STAGES. Two consumer warpgroups multiply, 64 x BLOCK_N each,
// with all accumulators in registers. Blocks are persistent: each takes tile after tile, columns first, so
// that a row of tiles is read from memory once. A cluster of CLUSTER_M x CLUSTER_N blocks works on
// neighbouring tiles. A tile of a is multicast to a row of blocks, one of b to a column, and the blocks
// alternate in loading.
#pragma once
#include "hopper.h"

constexpr int BLOCK_M = 128, BLOCK_K = 64;
constexpr int WARPGROUP = 128;
constexpr int TILE_A_BYTES = BLOCK_M * BLOCK_K * 2, TILE_B_BYTES = BLOCK_N * BLOCK_K * 2;
constexpr int STAGE_BYTES = TILE_A_BYTES + TILE_B_BYTES;
constexpr int CLUSTER = CLUSTER_M * CLUSTER_N;
constexpr int CONSUMER_WAVES = 8;
// Offsets in shared memory, in bytes: the stages, then a full and an empty barrier for each.
constexpr int FULL_BARRIERS = STAGES * STAGE_BYTES, EMPTY_BARRIERS = FULL_BARRIERS + 8 * STAGES;
constexpr int PIPELINE_END = EMPTY_BARRIERS + 8 * STAGES;

// The first row and the first column of a block's tile in the output.
struct TileCoord {
  int m0, n0;
};

// Clusters take tiles of CLUSTER_M * BLOCK_M rows and CLUSTER_N * BLOCK_N columns: `first`, first + stride
// and so on, of `count` in all, with tiles_n side by side.
struct TileScheduler {
  int tiles_n, count, first, stride;
  uint32 cluster_row, cluster_column;  // of this block in its cluster
};

DEVICE TileScheduler make_tile_scheduler(int m, int n) {
  TileScheduler scheduler;
  const uint32 rank = CLUSTER == 1 ? 0 : rank_in_cluster();
  scheduler.cluster_row = rank / CLUSTER_N;
  scheduler.cluster_column = rank % CLUSTER_N;
  scheduler.tiles_n = (n + BLOCK_N * CLUSTER_N - 1) / (BLOCK_N * CLUSTER_N);
  scheduler.count = scheduler.tiles_n * ((m + BLOCK_M * CLUSTER_M - 1) / (BLOCK_M * CLUSTER_M));
  scheduler.first = block_x() / CLUSTER;
  scheduler.stride = gridDim.x / CLUSTER;
  return scheduler;
}
DEVICE TileCoord tile_coord(const TileScheduler& scheduler, int tile) {
  return {(tile / scheduler.tiles_n * CLUSTER_M + (int)scheduler.cluster_row) * BLOCK_M,
          (tile % scheduler.tiles_n * CLUSTER_N + (int)scheduler.cluster_column) * BLOCK_N};
}
// Number of steps of BLOCK_K along k.
DEVICE int k_steps(int k) {
  return (k + BLOCK_K - 1) / BLOCK_K;
}

// A stage, and the phase of its barriers in this round through the stages.
struct PipelineState {
  int stage;
  uint32 phase;
};
DEVICE PipelineState next_state(PipelineState state) {
  return state.stage + 1 == STAGES ? PipelineState{0, state.phase ^ 1}
                                   : PipelineState{state.stage + 1, state.phase};
}

// Called by one thread before the pipeline is used.
DEVICE void init_pipeline(uint32 shared) {
  for (int stage = 0; stage < STAGES; stage++) {
    barrier_init(shared + FULL_BARRIERS + 8 * stage, 1);
    barrier_init(shared + EMPTY_BARRIERS + 8 * stage, CONSUMER_WAVES * (CLUSTER_M + CLUSTER_N - 1));
  }
}

// --- producer: one wave, of which one thread loads ---

// For every step of every tile of this block: waits for an empty stage, and loads both tiles into it.
// load_b(to, full_barrier, x, n0): loads the tile of b at column x; a further argument is a multicast_mask of
// blocks of the cluster. on_step(coord, step): additional work of the whole wave at each step.
template <class LoadB, class OnStep>
DEVICE void load_tiles(const TileScheduler& scheduler, const TensorMap& a, uint32 shared, int steps,
                       const LoadB& load_b, const OnStep& on_step) {
  const int lane = thread_index() % WAVE;
  const int row_mask = ((1 << CLUSTER_N) - 1) << (scheduler.cluster_row * CLUSTER_N);
  int column_mask = 0;
#pragma unroll
  for (int i = 0; i < CLUSTER_M; i++) column_mask |= 1 << (i * CLUSTER_N + scheduler.cluster_column);
  PipelineState write = {0, 0};
  for (int tile = scheduler.first; tile < scheduler.count; tile += scheduler.stride) {
    const TileCoord coord = tile_coord(scheduler, tile);
    for (int step = 0; step < steps; step++, write = next_state(write)) {
      if (lane == 0) {
        const uint32 full_barrier = shared + FULL_BARRIERS + 8 * write.stage;
        const uint32 to = shared + write.stage * STAGE_BYTES;
        barrier_wait(shared + EMPTY_BARRIERS + 8 * write.stage, write.phase ^ 1);
        barrier_arrive_expect(full_barrier, STAGE_BYTES);
        if constexpr (CLUSTER_N == 1)
          tma_load_2d(to, a, full_barrier, step * BLOCK_K, coord.m0);
        else if (step % CLUSTER_N == scheduler.cluster_column)
          tma_load_2d(to, a, full_barrier, step * BLOCK_K, coord.m0, row_mask);
        if constexpr (CLUSTER_M == 1)
          load_b(to + TILE_A_BYTES, full_barrier, step * BLOCK_K, coord.n0);
        else if (step % CLUSTER_M == scheduler.cluster_row)
          load_b(to + TILE_A_BYTES, full_barrier, step * BLOCK_K, coord.n0, column_mask);
      }
      on_step(coord, step);
    }
  }
}

// --- consumers: two warpgroups, with 64 rows of the tile each ---

struct Consumer {
  uint32 shared;
  int warpgroup;  // 0 or 1, not counting the producer's
  TileScheduler scheduler;
};
DEVICE Consumer make_consumer(uint32 shared, const TileScheduler& scheduler) {
  return {shared, thread_index() / WARPGROUP - 1, scheduler};
}
DEVICE void consumer_wait(const Consumer& consumer, PipelineState state) {
  barrier_wait(consumer.shared + FULL_BARRIERS + 8 * state.stage, state.phase);
}
// Tells every block that loads into this one that this wave no longer needs a stage.
DEVICE void consumer_release(const Consumer& consumer, PipelineState state) {
  const int lane = thread_index() % WAVE;
  const uint32 row = lane / CLUSTER_N, column = lane % CLUSTER_N;
  const bool loads = lane < CLUSTER &&
                     (row == consumer.scheduler.cluster_row || column == consumer.scheduler.cluster_column);
  barrier_arrive_in_cluster_if(consumer.shared + EMPTY_BARRIERS + 8 * state.stage, loads ? lane : 0, loads);
}

// Matrix descriptors of the warpgroup's rows of a and of the tile of b in a stage, in units of 16 bytes: 16
// of k are 2, a row is 8.
struct Descriptors {
  uint64 a, b;
};
DEVICE Descriptors stage_descriptors(const Consumer& consumer, PipelineState state) {
  const uint32 at = consumer.shared + state.stage * STAGE_BYTES;
  return {matrix_descriptor(at + consumer.warpgroup * (64 * BLOCK_K * 2)),
          matrix_descriptor(at + TILE_A_BYTES)};
}
