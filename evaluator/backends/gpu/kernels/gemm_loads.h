// SPDX-License-Identifier: GPL-3.0-or-later
// The operands of gemm.hip, and the loads of its tiles: by asynchronous copies, or through registers.
#pragma once
#include "matrix.h"
#if SWIZZLED
#include "swizzled.h"
#endif

struct Problem {
  const Element* a;
  const char* b;
  const Element* scales;
  int m, n, k, lda, channels;
};

// The address of chunk (row, k) of a; null if it is zero.
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

DEVICE const char* source_b(const Problem& p, int row, int k) {
  if (row >= p.n || k >= p.k) return nullptr;
#if DIRECT
  const uint64 fragment = (uint64)(row / 16) * (p.k / 32) + k / 32;
  return p.b + (fragment * 64 + k % 32 / 8 * 16 + row % 16) * 16;
#endif
  return p.b + ((uint64)row * ((p.k + CHUNK_B - 1) / CHUNK_B) + k / CHUNK_B) * 16;
}

#if PACKED == 4
// Scales are stored as [k / PACKED_GROUP][n].
DEVICE const Element* source_scales(const Problem& p, int n0, int k0) {
  int column = n0 + thread_index() % ROW_CHUNKS_SCALES * CHUNK;
  int group = k0 / PACKED_GROUP + thread_index() / ROW_CHUNKS_SCALES;
  if (column >= p.n || group * PACKED_GROUP >= p.k) return nullptr;
  return p.scales + (uint64)group * p.n + column;
}
#endif

#if ASYNC_COPY
DEVICE void load_tile_a(const Problem& p, char* tile, int m0, int k0) {
#pragma unroll
  for (int i = 0; i < CHUNKS_A; i++) {
    int index = thread_index() + i * THREADS, row = index / ROW_CHUNKS, column = index % ROW_CHUNKS * CHUNK;
    if (BLOCK_M * ROW_CHUNKS % THREADS && row >= BLOCK_M) break;
    const Element* from = source_a(p, m0 + row, k0 + column);
    copy_async((Element*)tile + row * STRIDE + column, from ? from : p.a, from != nullptr);
  }
}
DEVICE void load_tile_b(const Problem& p, char* tile, int n0, int k0) {
#pragma unroll
  for (int i = 0; i < CHUNKS_B; i++) {
    int index = thread_index() + i * THREADS, row = index / ROW_CHUNKS_B, chunk = index % ROW_CHUNKS_B;
    if (BLOCK_N * ROW_CHUNKS_B % THREADS && row >= BLOCK_N) break;
    const char* from = source_b(p, n0 + row, k0 + chunk * CHUNK_B);
    copy_async(tile + TILE_A_BYTES + row * STRIDE_B + chunk * 16, from ? from : p.b, from != nullptr);
  }
#if PACKED == 4
  if (thread_index() < CHUNKS_SCALES) {
    const Element* from = source_scales(p, n0, k0);
    copy_async(tile + TILE_A_BYTES + TILE_B_BYTES + thread_index() * 16, from ? from : p.scales,
               from != nullptr);
  }
#endif
}
#else
struct StagedChunks {
  Bits128 a[CHUNKS_A], b[CHUNKS_B];
#if PACKED == 4
  Bits128 scales;
#endif
};
DEVICE Bits128 read_or_zero(const void* from) {
  return from ? read_global(from) : Bits128{{0, 0, 0, 0}};
}
#if WHOLE_STEPS
// Offsets of a thread's chunks of a step, in bytes from the block's first rows. Rows beyond the last repeat
// the last; their results are never written.
struct Places {
  uint32 a[CHUNKS_A], b[CHUNKS_B];
  const char *rows_a, *rows_b;
};
DEVICE Places places_of(const Problem& p, int m0, int n0) {
  Places places;
  const int row_b = (p.k + CHUNK_B - 1) / CHUNK_B * 16, row_a = p.lda * (int)sizeof(Element);
#pragma unroll
  for (int i = 0; i < CHUNKS_A; i++) {
    int index = thread_index() + i * THREADS, row = index / ROW_CHUNKS, last = p.m - 1 - m0;
    places.a[i] = (row < last ? row : last) * row_a + index % ROW_CHUNKS * 16;
  }
#pragma unroll
  for (int i = 0; i < CHUNKS_B; i++) {
    int index = thread_index() + i * THREADS, row = index / ROW_CHUNKS_B, last = p.n - 1 - n0;
    places.b[i] = (row < last ? row : last) * row_b + index % ROW_CHUNKS_B * 16;
  }
  places.rows_a = (const char*)p.a + (uint64)m0 * row_a;
  places.rows_b = p.b + (uint64)n0 * row_b;
  return places;
}
#else
struct Places {};
DEVICE Places places_of(const Problem&, int, int) {
  return {};
}
#endif
DEVICE void fetch_tile(const Problem& p, Places& places, StagedChunks& staged, int m0, int n0, int k0) {
#if WHOLE_STEPS
  const char* a = places.rows_a + (uint64)k0 * sizeof(Element);
  const char* b = places.rows_b + (uint64)(k0 / CHUNK_B) * 16;
#endif
#pragma unroll
  for (int i = 0; i < CHUNKS_A; i++) {
    int index = thread_index() + i * THREADS, row = index / ROW_CHUNKS, column = index % ROW_CHUNKS * CHUNK;
#if WHOLE_STEPS
    if (BLOCK_M * ROW_CHUNKS % THREADS == 0 || row < BLOCK_M) staged.a[i] = read_global(a, places.a[i]);
#else
    staged.a[i] = read_or_zero(row < BLOCK_M ? source_a(p, m0 + row, k0 + column) : nullptr);
#endif
  }
#pragma unroll
  for (int i = 0; i < CHUNKS_B; i++) {
    int index = thread_index() + i * THREADS, row = index / ROW_CHUNKS_B, chunk = index % ROW_CHUNKS_B;
#if WHOLE_STEPS
    if (FRAGMENTS) break;
    if (BLOCK_N * ROW_CHUNKS_B % THREADS == 0 || row < BLOCK_N) staged.b[i] = read_global(b, places.b[i]);
#else
    staged.b[i] = read_or_zero(row < BLOCK_N ? source_b(p, n0 + row, k0 + chunk * CHUNK_B) : nullptr);
#endif
  }
#if PACKED == 4
  staged.scales = read_or_zero(thread_index() < CHUNKS_SCALES ? source_scales(p, n0, k0) : nullptr);
#endif
}
DEVICE char* place_of_chunk(char* tile, int row, int chunk, int stride) {
#if SWIZZLED
  return tile + swizzled(row, chunk);
#else
  return tile + row * stride + chunk * 16;
#endif
}
DEVICE void store_tile(const StagedChunks& staged, char* tile) {
#pragma unroll
  for (int i = 0; i < CHUNKS_A; i++) {
    int index = thread_index() + i * THREADS, row = index / ROW_CHUNKS, chunk = index % ROW_CHUNKS;
    char* to = place_of_chunk(tile, row, chunk, STRIDE * sizeof(Element));
    if (BLOCK_M * ROW_CHUNKS % THREADS == 0 || row < BLOCK_M) *(Bits128*)to = staged.a[i];
  }
#pragma unroll
  for (int i = 0; i < CHUNKS_B; i++) {
    int index = thread_index() + i * THREADS, row = index / ROW_CHUNKS_B, chunk = index % ROW_CHUNKS_B;
    if (FRAGMENTS) break;
    char* to = place_of_chunk(tile + TILE_A_BYTES, row, chunk, STRIDE_B);
    if (BLOCK_N * ROW_CHUNKS_B % THREADS == 0 || row < BLOCK_N) *(Bits128*)to = staged.b[i];
  }
#if PACKED == 4
  if (thread_index() < CHUNKS_SCALES)
    ((Bits128*)(tile + TILE_A_BYTES + TILE_B_BYTES))[thread_index()] = staged.scales;
#endif
}
#endif
