// What the products on sm_90a have in common: the tiles of a grid of clusters, and the ring of stages that
// both operands come through. A kernel that includes this is compiled for a BLOCK_N, STAGES, CLUSTER_M and
// CLUSTER_N.
//
// One thread keeps STAGES buffers of both tiles on their way through the tensor memory accelerator. Two
// groups of 4 waves multiply, 64 x BLOCK_N each, all sums in registers. Blocks stay and take tile after tile,
// columns first, so that a row of tiles is read from memory once. A cluster of CLUSTER_M x CLUSTER_N blocks
// works on neighbouring tiles: a tile of a goes to all of a row of blocks at once, one of b to all of a
// column, each block loading in its turn.
#pragma once
#include "hopper.h"

constexpr int BLOCK_M = 128, BLOCK_K = 64;
constexpr int GROUP = 128;
constexpr int TILE_A = BLOCK_M * BLOCK_K * 2, TILE_B = BLOCK_N * BLOCK_K * 2, TILES = TILE_A + TILE_B;
constexpr int CLUSTER = CLUSTER_M * CLUSTER_N;
constexpr int MULTIPLIER_WAVES = 8;
// In shared memory, bytes: the stages, then two barriers for each.
constexpr int FULL = STAGES * TILES, EMPTY = FULL + 8 * STAGES, AFTER_STAGES = EMPTY + 8 * STAGES;

struct Place {
  int m0, n0;
};

struct Tiles {
  int across, count, first, stride;
  uint32 row, column;  // of this block in its cluster
};

DEVICE Tiles tiles_of(int m, int n) {
  Tiles tiles;
  const uint32 rank = CLUSTER == 1 ? 0 : rank_in_cluster();
  tiles.row = rank / CLUSTER_N;
  tiles.column = rank % CLUSTER_N;
  tiles.across = (n + BLOCK_N * CLUSTER_N - 1) / (BLOCK_N * CLUSTER_N);
  tiles.count = tiles.across * ((m + BLOCK_M * CLUSTER_M - 1) / (BLOCK_M * CLUSTER_M));
  tiles.first = block_x() / CLUSTER;
  tiles.stride = gridDim.x / CLUSTER;
  return tiles;
}
DEVICE Place place_of(const Tiles& tiles, int tile) {
  return {(tile / tiles.across * CLUSTER_M + (int)tiles.row) * BLOCK_M,
          (tile % tiles.across * CLUSTER_N + (int)tiles.column) * BLOCK_N};
}

// A position in the ring of stages.
struct Turn {
  int stage;
  uint32 phase;
};
DEVICE Turn after(Turn turn) {
  return turn.stage + 1 == STAGES ? Turn{0, turn.phase ^ 1} : Turn{turn.stage + 1, turn.phase};
}

// By one thread, before anybody uses the ring.
DEVICE void init_stages(uint32 shared) {
  for (int stage = 0; stage < STAGES; stage++) {
    barrier_init(shared + FULL + 8 * stage, 1);
    barrier_init(shared + EMPTY + 8 * stage, MULTIPLIER_WAVES * (CLUSTER_M + CLUSTER_N - 1));
  }
}

// --- loading, by one wave ---

// For every step of every tile of this block: waits for a stage, and has both tiles loaded into it.
// load_b(to, full, x, n0): loads b's at column x for this block; with one more argument, for `blocks`.
// beside(place, step): what else the whole wave does with each step.
template <class LoadB, class Beside>
DEVICE void load_tiles(const Tiles& tiles, const TensorMap& a, uint32 shared, int steps, const LoadB& load_b,
                       const Beside& beside) {
  const int lane = thread_index() % WAVE;
  const int row_blocks = ((1 << CLUSTER_N) - 1) << (tiles.row * CLUSTER_N);
  int column_blocks = 0;
#pragma unroll
  for (int i = 0; i < CLUSTER_M; i++) column_blocks |= 1 << (i * CLUSTER_N + tiles.column);
  Turn turn = {0, 0};
  for (int tile = tiles.first; tile < tiles.count; tile += tiles.stride) {
    const Place place = place_of(tiles, tile);
    for (int step = 0; step < steps; step++, turn = after(turn)) {
      if (lane == 0) {
        const uint32 full = shared + FULL + 8 * turn.stage, to = shared + turn.stage * TILES;
        barrier_wait(shared + EMPTY + 8 * turn.stage, turn.phase ^ 1);
        barrier_expect(full, TILES);
        if constexpr (CLUSTER_N == 1)
          load_box(to, a, full, step * BLOCK_K, place.m0);
        else if (step % CLUSTER_N == tiles.column)
          load_box(to, a, full, step * BLOCK_K, place.m0, row_blocks);
        if constexpr (CLUSTER_M == 1)
          load_b(to + TILE_A, full, step * BLOCK_K, place.n0);
        else if (step % CLUSTER_M == tiles.row)
          load_b(to + TILE_A, full, step * BLOCK_K, place.n0, column_blocks);
      }
      beside(place, step);
    }
  }
}

// --- multiplying ---

// Tells every block that loads into this one that this wave is done with a stage.
DEVICE void release(uint32 shared, Turn turn, const Tiles& tiles) {
  const int lane = thread_index() % WAVE;
  const uint32 row = lane / CLUSTER_N, column = lane % CLUSTER_N;
  const bool loads = lane < CLUSTER && (row == tiles.row || column == tiles.column);
  barrier_arrive_if(shared + EMPTY + 8 * turn.stage, loads ? lane : 0, loads);
}

struct Operands {
  uint64 a, b;
};
DEVICE Operands operands_of(uint32 shared, Turn turn, int group) {
  const uint32 at = shared + turn.stage * TILES;
  return {operand(at + group * (64 * BLOCK_K * 2)), operand(at + TILE_A)};
}
