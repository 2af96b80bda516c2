// SPDX-License-Identifier: GPL-3.0-or-later
// Dequantises weights of 8 or 4 bits (PACKED) into fragments of the matrix unit.
//
// A weight is (code - ZERO_POINT) * scale. Codes are stored in quads: the four that one lane needs together.
// They are neighbours along k, but k, k + 1, k + 8 and k + 9 for mma.sync (packed so by ../plan).   8
// bits: one byte per code; one float scale per row, applied by the product's epilogue.
//   4 bits: two bytes per quad, c0 | c2 << 4 and c1 | c3 << 4; one scale, an element, for PACKED_GROUP
//     codes along k of a row, applied here.
// fp16 numbers are made without a conversion: 0x6400 | code is 1024 + code in fp16.
#pragma once
#include "matrix.h"

#if PACKED == 8
constexpr int ZERO_POINT = 128;
typedef uint32 Quad;
#else
constexpr int ZERO_POINT = 8;
typedef uint16 Quad;
#endif
constexpr int PACKED_GROUP = 32;

// Several quads, read by one load.
template <int COUNT>
struct alignas(COUNT * sizeof(Quad)) Quads {
  Quad quad[COUNT];
};

#if defined(MATRIX_FMA)
DEVICE void dequantise(Quad quad, float scale, float* value) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
#if PACKED == 8
    value[i] = (float)(int)(quad >> 8 * i & 0xff) - ZERO_POINT;
#else
    int shift = 8 * (i % 2) + 4 * (i / 2);
    value[i] = ((float)(int)(quad >> shift & 0xf) - ZERO_POINT) * scale;
#endif
  }
}

// rows: the codes of 16 rows, `stride` bytes apart. scales: those of the 16 rows, for 4 bits only.
DEVICE FragmentB load_packed_b(const char* rows, int stride, const Element* scales) {
  FragmentB b;
  const int column = lane_index() % 16;
  const Quads<4> quads = *(const Quads<4>*)(rows + column * stride);
  const float scale = PACKED == 4 ? to_float(scales[column]) : 1.0f;
#pragma unroll
  for (int i = 0; i < 4; i++) dequantise(quads.quad[i], scale, b.value + 4 * i);
  return b;
}

#else
#if defined(__CUDACC__)
DEVICE uint32 permute_bytes(uint32 low, uint32 high, uint32 selector) {
  return __byte_perm(low, high, selector);
}
#define SELECTOR(a, b, c, d) 0x##d##c##b##a
DEVICE uint32 subtract_pair(uint32 a, uint32 b) {
  uint32 result;
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}
DEVICE uint32 multiply_pair(uint32 a, uint32 b) {
  uint32 result;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}
#else
DEVICE uint32 permute_bytes(uint32 low, uint32 high, uint32 selector) {
  return __builtin_amdgcn_perm(high, low, selector);
}
#define SELECTOR(a, b, c, d) 0x0##d##0##c##0##b##0##a
typedef _Float16 Halves __attribute__((ext_vector_type(2)));
DEVICE uint32 subtract_pair(uint32 a, uint32 b) {
  return __builtin_bit_cast(uint32, __builtin_bit_cast(Halves, a) - __builtin_bit_cast(Halves, b));
}
DEVICE uint32 multiply_pair(uint32 a, uint32 b) {
  return __builtin_bit_cast(uint32, __builtin_bit_cast(Halves, a) * __builtin_bit_cast(Halves, b));
}
#endif

// Converts four codes into two pairs of fp16 weights. scale: the same fp16 number twice.
DEVICE void dequantise(Quad quad, uint32 scale, uint32* pair) {
  constexpr uint32 OFFSET = (0x6400 + ZERO_POINT) * 0x10001u;
#if PACKED == 8
  pair[0] = subtract_pair(permute_bytes(quad, 0x64646464u, SELECTOR(0, 4, 1, 4)), OFFSET);
  pair[1] = subtract_pair(permute_bytes(quad, 0x64646464u, SELECTOR(2, 4, 3, 4)), OFFSET);
#else
  const uint32 spread = permute_bytes(quad, 0, SELECTOR(0, 4, 1, 4));
  pair[0] = multiply_pair(subtract_pair((spread & 0x000f000fu) | 0x64006400u, OFFSET), scale);
  pair[1] = multiply_pair(subtract_pair((spread >> 4 & 0x000f000fu) | 0x64006400u, OFFSET), scale);
#endif
}

DEVICE uint32 scale_pair(const Element* scales, int row) {
  return PACKED == 4 ? scales[row].bits * 0x10001u : 0;
}

#if defined(MATRIX_MMA_SYNC)
DEVICE FragmentB load_packed_b(const char* rows, int stride, const Element* scales) {
  FragmentB b;
  const int group = lane_index() / 4, quarter = lane_index() % 4;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const int row = group + 8 * half;
    const Quad quad = *(const Quad*)(rows + row * stride + quarter * sizeof(Quad));
    dequantise(quad, scale_pair(scales, row), b.word + 2 * half);
  }
  return b;
}
#else
DEVICE FragmentB load_packed_b(const char* rows, int stride, const Element* scales) {
  typedef Quads<K_SPAN / 4> Span;
  struct Pairs {
    uint32 pair[K_SPAN / 2];
  } pairs;
  const int row = lane_index() % 16;
  const Span span = *(const Span*)(rows + row * stride + first_k() / 4 * sizeof(Quad));
  const uint32 scale = scale_pair(scales, row);
#pragma unroll
  for (int i = 0; i < K_SPAN / 4; i++) dequantise(span.quad[i], scale, pairs.pair + 2 * i);
  return FragmentB{__builtin_bit_cast(Operand, pairs)};
}
#endif
#endif
