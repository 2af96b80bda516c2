// SPDX-License-Identifier: GPL-3.0-or-later
// The epilogue of a block's tile on AMD's matrix units (swizzled.h): from lanes with ACCUMULATORS
// neighbouring columns of a row to whole chunks in memory.
#pragma once
#include "activation.h"
#include "row_norms.h"
#include "swizzled.h"
#if ROUND == E4M3
#include "e4m3.h"
#endif

// See the arguments of the kernel.
struct Results {
  const float* bias;
  const Element* residual;
  Element* out;
  float* partials;
  int m, n, ldo;
  float scale, first_scale;
  int first_columns;
  float round_scale;
  const float* norm_columns;
  RowSums* row_sums;
};
typedef float Columns __attribute__((ext_vector_type(ACCUMULATORS), aligned(16)));
typedef uint32 ColumnPairs __attribute__((ext_vector_type(ACCUMULATORS / 2)));

// Number of parts of the tile that go through shared memory, one after the other. Each has equally many rows
// of every wave and, if possible, needs no more space than the loop did.
constexpr int parts_of_tile(int parts) {
  return TILES_M % (2 * parts) == 0 &&
                 BLOCK_M / parts * OUT_STRIDE * (int)sizeof(Element) > STAGES * STAGE_BYTES
             ? parts_of_tile(2 * parts)
             : parts;
}
constexpr int PARTS = parts_of_tile(1);
constexpr int PART_TILES = TILES_M / PARTS;
constexpr int PART_CHUNKS = BLOCK_M / PARTS * (BLOCK_N / CHUNK);

// The row in the block's tile of a row of a part.
DEVICE int row_of_part(int part, int row) {
  constexpr int OF_WAVE = PART_TILES * 16;
  return PARTS == 1 ? row : row / OF_WAVE * (TILES_M * 16) + part * OF_WAVE + row % OF_WAVE;
}

// Moves a part between shared memory and device memory: move(chunk there, index of its first element here).
template <typename Move>
DEVICE void each_chunk(const Results& r, Element* tiles, int part, int m0, int n0, Move move) {
#pragma unroll
  for (int i = 0; i < (PART_CHUNKS + THREADS - 1) / THREADS; i++) {
    const int index = thread_index() + i * THREADS;
    if (PART_CHUNKS % THREADS && index >= PART_CHUNKS) break;
    const int part_row = index / (BLOCK_N / CHUNK), column = index % (BLOCK_N / CHUNK) * CHUNK;
    const int row = m0 + row_of_part(part, part_row);
    if (row < r.m && n0 + column < r.n)
      move(tiles + part_row * OUT_STRIDE + column, (uint64)row * r.ldo + n0 + column);
  }
}

DEVICE Columns read_columns(const float* from) {
  return *(const Columns*)from;
}
DEVICE Columns read_columns(const Element* from) {
  union {
    ColumnPairs pairs;
    Element element[ACCUMULATORS];
  } read;
  read.pairs = *(const ColumnPairs*)from;
  Columns x;
#pragma unroll
  for (int e = 0; e < ACCUMULATORS; e++) x[e] = to_float(read.element[e]);
  return x;
}
DEVICE void write_columns(Element* to, Columns x) {
  ColumnPairs pairs;
#pragma unroll
  for (int e = 0; e < ACCUMULATORS; e += 2)
    pairs[e / 2] = to_element(x[e]).bits | (uint32)to_element(x[e + 1]).bits << 16;
  *(ColumnPairs*)to = pairs;
}

// Writes the sums of a row's columns in this wave, of which each lane has a share.
DEVICE void write_row_sums(RowSums share, bool writes, int row, int part, const Results& r) {
#pragma unroll
  for (int mask = 16; mask < WAVE; mask *= 2)
    share = {share.sum + wave_xor(share.sum, mask), share.squares + wave_xor(share.squares, mask)};
  if (writes && lane_index() < 16 && row < r.m) r.row_sums[(uint64)part * r.m + row] = share;
}

// The start of a wave's columns in the tile and in the matrix, and their part of a row.
struct Place {
  int warp_m, first, m0, n0, part;
};

// Writes one part of the tile and those behind it. writes: true if the wave has sums; all waves move data
// through shared memory. norms: of the block's rows. (A template, because a loop over parts would be unrolled
// too late for the sums to stay in registers.)
template <int PART>
DEVICE void write_parts(const Accumulator (&c)[TILES_M][TILES_N], Element* tiles, const RowNorm* norms,
                        bool writes, const Place& at, const Results& r) {
  if (PART > 0) block_sync();
#if RESIDUAL
  each_chunk(r, tiles, PART, at.m0, at.n0,
             [&](Element* here, uint64 there) { copy_chunk(here, r.residual + there); });
  block_sync();
#endif
  const int part_row = at.warp_m * PART_TILES * 16 + lane_index() % 16;
  RowSums sums[PART_TILES] = {};
#pragma unroll
  for (int j = 0; j < TILES_N; j++) {
    const int column = at.first + j * 16, global_column = at.n0 + column;
    const int inside = global_column < r.n ? global_column : 0;
#if BIAS
    const Columns bias = read_columns(r.bias + inside);
#endif
#if NORMED
    const Columns of_norm = read_columns(r.norm_columns + inside);
#endif
#pragma unroll
    for (int i = 0; i < PART_TILES; i++) {
      const int row = at.m0 + row_of_part(PART, part_row + i * 16);
      Columns x;
#pragma unroll
      for (int e = 0; e < ACCUMULATORS; e++) x[e] = c[PART * PART_TILES + i][j].value[e];
#if FORMAT == E4M3
      x *= global_column < r.first_columns ? r.first_scale : r.scale;
#endif
#if SPLIT
      if (writes && row < r.m && global_column < r.n)
        *(Columns*)(r.partials + ((uint64)block_z() * r.m + row) * r.n + global_column) = x;
#else
#if NORMED
      const RowNorm norm = norms[row - at.m0];
#endif
#if INPUT_NORM
      x = x * norm.scale + (of_norm * norm.shift + bias);
#elif BIAS_BY_SQUARE
      x += read_columns(r.bias + row % 64 * r.n + inside);
#elif BIAS
      x += bias;
#endif
      Element* to = tiles + (part_row + i * 16) * OUT_STRIDE + column;
#if RESIDUAL
      // A wave without sums must not read what the others write.
      const Columns residual = writes ? read_columns(to) : Columns{};
#endif
#if RESIDUAL_NORM
      x += (residual * norm.scale + norm.shift) * of_norm;
#elif RESIDUAL
      x += residual;
#endif
#pragma unroll
      for (int e = 0; e < ACCUMULATORS; e++) {
        x[e] = activate<ACTIVATION>(x[e]);
        sums[i] = {sums[i].sum + x[e], sums[i].squares + x[e] * x[e]};
      }
      if (writes) write_columns(to, x);
#endif
    }
  }
#if ROW_SUMS
#pragma unroll
  for (int i = 0; i < PART_TILES; i++)
    write_row_sums(sums[i], writes, at.m0 + row_of_part(PART, part_row + i * 16), at.part, r);
#endif
#if !SPLIT
  block_sync();
  each_chunk(r, tiles, PART, at.m0, at.n0, [&](Element* here, uint64 there) {
#if ROUND == E4M3
    float x[CHUNK];
    read_chunk(x, here);
    *(Bits64*)((char*)r.out + there) = e4m3_chunk(x, r.round_scale);
#else
    copy_chunk(r.out + there, here);
#endif
  });
#endif
  if constexpr (PART + 1 < PARTS) write_parts<PART + 1>(c, tiles, norms, writes, at, r);
}

// Writes a block's tile. norm: of the block's row with the thread's number.
DEVICE void write_tile(const Accumulator (&c)[TILES_M][TILES_N], char* shared, int warp_m, int warp_n,
                       bool writes, int m0, int n0, RowNorm norm, const Results& r) {
  RowNorm* norms = (RowNorm*)(shared + BLOCK_M / PARTS * OUT_STRIDE * sizeof(Element));
#if NORMED
  if (thread_index() < BLOCK_M) norms[thread_index()] = norm;
  block_sync();
#endif
  const int first = warp_n * TILES_N * 16 + first_column(), part = n0 / PART_COLUMNS + warp_n;
  write_parts<0>(c, (Element*)shared, norms, writes, Place{warp_m, first, m0, n0, part}, r);
}
