// SPDX-License-Identifier: GPL-3.0-or-later
// The products of one step of gemm.hip on AMD's matrix units.
#pragma once
#include "gemm_loads.h"

// Ends the products here. clang 22 would move them past the next branch, with all fragments of the step in
// registers until then: on gfx11 it spilled 113 registers. On CDNA the sums may be in AGPRs, and the
// constraint would copy them.
DEVICE void end_products(Accumulator (&c)[TILES_M][TILES_N]) {
#if defined(MATRIX_WMMA_GFX11) || defined(MATRIX_WMMA_GFX12)
#pragma unroll
  for (int i = 0; i < TILES_M; i++)
#pragma unroll
    for (int j = 0; j < TILES_N; j++) {
      Sums sums = __builtin_bit_cast(Sums, c[i][j]);
      asm volatile("" : "+v"(sums));
      c[i][j] = __builtin_bit_cast(Accumulator, sums);
    }
#endif
}

// Multiplies WIDE_SPANS fragments from k on: all rows of a wave by those of b.
DEVICE void multiply_rows(Accumulator (&c)[TILES_M][TILES_N], const char* tile, int warp_m,
                          const Span (*b)[TILES_N], int k) {
  tile += warp_m * TILES_M * 16 * ROW_BYTES;
#pragma unroll
  for (int i = 0; i < TILES_M; i++) {
    Span a[WIDE_SPANS];
#pragma unroll
    for (int s = 0; s < WIDE_SPANS; s++) a[s] = load_span_a(tile + i * 16 * ROW_BYTES, k + s * SPAN);
#pragma unroll
    for (int j = 0; j < TILES_N; j++)
#if WIDE_SPANS > 1
      multiply_wide(c[i][j], a, b[0][j], b[1][j]);
#else
      multiply_span(c[i][j], a[0], b[0][j]);
#endif
  }
}

#if FRAGMENTS
static_assert(WHOLE_STEPS && !SPLIT && WARPS_K == 1, "an even number of whole steps");
struct Fragments {
  Span span[BLOCK_K / SPAN][TILES_N];
};

// Loads a wave's fragments of b for a step, [n / 16][k / SPAN][WAVE], in the order of its lanes.
DEVICE void fetch_fragments(const Problem& p, Fragments& fragments, int n0, int warp_n, int k0) {
  constexpr int BYTES = WAVE * sizeof(Span);
  const int last = (p.n - 1) / 16;
  uint32 place = lane_index() * sizeof(Span);
#pragma unroll
  for (int j = 0; j < TILES_N; j++) {
    const int wanted = n0 / 16 + warp_n * TILES_N + j;
    const char* from = p.b + ((uint64)(wanted < last ? wanted : last) * (p.k / SPAN) + k0 / SPAN) * BYTES;
#pragma unroll
    for (int i = 0; i < BLOCK_K / SPAN; i++)
      fragments.span[i][j] = __builtin_bit_cast(Span, read_global(from + i * BYTES, place));
  }
}

DEVICE void multiply_tile(Accumulator (&c)[TILES_M][TILES_N], const char* tile, const Fragments& fragments,
                          int warp_m) {
#pragma unroll
  for (int i = 0; i < BLOCK_K / SPAN; i += WIDE_SPANS)
    multiply_rows(c, tile, warp_m, fragments.span + i, i * SPAN);
}

#else
DEVICE void multiply_tile(Accumulator (&c)[TILES_M][TILES_N], const char* tile, int warp_m, int warp_n,
                          int warp_k) {
  const char* columns = tile + TILE_A_BYTES + warp_n * TILES_N * 16 * ROW_BYTES;
#pragma unroll
  for (int step = 0; step < BLOCK_K; step += WIDE_SPANS * SPAN * WARPS_K) {
    const int k = step + WIDE_SPANS * SPAN * warp_k;
    Span b[WIDE_SPANS][TILES_N];
#pragma unroll
    for (int s = 0; s < WIDE_SPANS; s++)
#pragma unroll
      for (int j = 0; j < TILES_N; j++) b[s][j] = load_span_b(columns + j * 16 * ROW_BYTES, k + s * SPAN);
    multiply_rows(c, tile, warp_m, b, k);
  }
  end_products(c);
}
#endif
