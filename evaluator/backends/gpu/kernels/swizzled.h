// SPDX-License-Identifier: GPL-3.0-or-later
// Tiles in the LDS for AMD's matrix units, and the fragments that lanes read from them.
//
// A tile is [rows][BLOCK_K] of 16-bit elements without padding. The chunks of a row are permuted (swizzled)
// by the row's number, so that the 8 lanes that the LDS serves in one cycle access different banks. Writes
// access neighbouring chunks. Reads of fragments access the same chunk of 8 rows, or on CDNA one chunk of
// four rows and its neighbour of four others (AMD, Composable Kernel, "Understanding AMD GPU LDS and bank
// conflicts").
//
// A lane reads whole chunks. On MFMA a chunk is the operands of two products of 16 along k: of 32 along k the
// first takes the lower half of each chunk, the second the upper one. The order of k is free, because it is
// the same for a and b.
//
// For e4m3, gfx950 multiplies WIDE_SPANS fragments in one instruction, if a step has as many.
//
// Products are computed transposed, as b a^T: element e of an accumulator is then in row lane % 16 and column
// FIRST_COLUMN + e. On gfx11, where a lane holds every second column, b's rows are read in an order with the
// same result.
#pragma once
#include "matrix.h"

constexpr int ROW_BYTES = BLOCK_K * (int)sizeof(Element);
static_assert(CHUNK == 8 && ROW_BYTES >= 64, "a fragment is whole chunks");

#if defined(MATRIX_MFMA)
constexpr int SPAN = 32;  // length of a fragment along k
#else
constexpr int SPAN = 16;
#endif
#if FORMAT == E4M3 && defined(__gfx950__) && BLOCK_K % (64 * WARPS_K) == 0
#define WIDE_SPANS 2
#else
#define WIDE_SPANS 1
#endif
typedef uint32 Words4 __attribute__((ext_vector_type(4)));
typedef uint32 Words8 __attribute__((ext_vector_type(8)));
#if defined(MATRIX_WMMA_GFX11)
typedef Words8 Span;
#else
typedef Words4 Span;
#endif

// The byte offset of a chunk of a row.
DEVICE int swizzled(int row, int chunk) {
  const int upper = row / 4 % 2 ^ row / 8 % 2;
  const int exchanged = ROW_BYTES >= 128 ? row % 4 + 4 * upper : row / 2 % 2 + 2 * upper;
  return row * ROW_BYTES + (chunk ^ exchanged) * 16;
}

// The first of the ACCUMULATORS consecutive columns of a lane.
DEVICE int first_column() {
  return ACCUMULATORS * (lane_index() / 16);
}

// The fragment with SPAN elements from k on, of the 16 rows of `tile`. row: the lane's.
DEVICE Span load_span(const char* tile, int row, int k) {
  const int first = k / CHUNK;
#if defined(MATRIX_WMMA_GFX11)  // all 16 elements
  const Words4 low = *(const Words4*)(tile + swizzled(row, first));
  const Words4 high = *(const Words4*)(tile + swizzled(row, first + 1));
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
#else
  return *(const Words4*)(tile + swizzled(row, first + lane_index() / 16));
#endif
}
DEVICE Span load_span_a(const char* tile, int k) {
  return load_span(tile, lane_index() % 16, k);
}
DEVICE Span load_span_b(const char* tile, int k) {
#if defined(MATRIX_WMMA_GFX11)
  return load_span(tile, lane_index() % 2 * 8 + lane_index() % 16 / 2, k);
#else
  return load_span(tile, lane_index() % 16, k);
#endif
}

template <typename Accumulators>
DEVICE void multiply_transposed(Accumulators& c, Operand a, Operand b) {
#if FORMAT
  multiply_pairs(c, FragmentA{b}, FragmentB{a});
#else
  multiply(c, FragmentA{b}, FragmentB{a});
#endif
}
#if WIDE_SPANS > 1
// 128 numbers along k, 32 in a lane, in twice the time of the instruction for 32. Without scales.
template <typename Accumulators>
DEVICE void multiply_wide(Accumulators& c, const Span (&a)[WIDE_SPANS], Span b0, Span b1) {
  typedef int Numbers __attribute__((ext_vector_type(8)));
  const Numbers x = __builtin_bit_cast(Numbers, __builtin_shufflevector(a[0], a[1], 0, 1, 2, 3, 4, 5, 6, 7));
  const Numbers y = __builtin_bit_cast(Numbers, __builtin_shufflevector(b0, b1, 0, 1, 2, 3, 4, 5, 6, 7));
  Sums sums = __builtin_bit_cast(Sums, c);
  sums = __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(y, x, sums, 0, 0, 0, 0, 0, 0);
  c = __builtin_bit_cast(Accumulators, sums);
}
#endif
template <typename Accumulators>
DEVICE void multiply_span(Accumulators& c, Span a, Span b) {
#if defined(MFMA_SPAN) && !FORMAT
  Sums sums;
#pragma unroll
  for (int i = 0; i < ACCUMULATORS; i++) sums[i] = c.value[i];
  sums = MFMA_SPAN(__builtin_bit_cast(SpanLanes, b), __builtin_bit_cast(SpanLanes, a), sums);
#pragma unroll
  for (int i = 0; i < ACCUMULATORS; i++) c.value[i] = sums[i];
#elif defined(MATRIX_MFMA)
  const Lanes8 x = __builtin_bit_cast(Lanes8, a), y = __builtin_bit_cast(Lanes8, b);
  multiply_transposed(c, __builtin_shufflevector(x, x, 0, 1, 2, 3),
                      __builtin_shufflevector(y, y, 0, 1, 2, 3));
  multiply_transposed(c, __builtin_shufflevector(x, x, 4, 5, 6, 7),
                      __builtin_shufflevector(y, y, 4, 5, 6, 7));
#else
  multiply_transposed(c, __builtin_bit_cast(Operand, a), __builtin_bit_cast(Operand, b));
#endif
}
