// SPDX-License-Identifier: GPL-3.0-or-later
// A 16 x 16 x 16 matrix product by one wave, on the matrix unit of the target:
//   mma.sync (sm_80 and newer), WMMA (gfx11 and gfx12), MFMA (gfx90a, gfx942, gfx950,
//   and gfx908 without bf16); plain FMA on other targets, and always for float storage.
//
// c[row][column] += sum over k of a[row][k] b[column][k], accumulated in float. Fragments of a and b come
// from shared memory, where each row is 16-byte aligned; load_accumulator and store_accumulator move c from
// and to such a tile of elements. The elements of c in a lane depend on the unit: element i is at
// (accumulator_row(i), accumulator_column(i)). A lane's elements are in ROW_SLOTS rows, element i in that of
// row_slot(i). row_sum and row_max combine a row over the lanes that share it.
#pragma once
#include "portable.h"

// MATRIX_GENERIC: the host knows no matrix unit of the target, so none is used. MATRIX_LIKE_GFX942: MFMA.
#if defined(ELEMENT_FP32) || defined(MATRIX_GENERIC)
#define MATRIX_FMA 1
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define MATRIX_MMA_SYNC 1
#elif defined(__GFX11__)
#define MATRIX_WMMA_GFX11 1
#elif defined(__GFX12__)
#define MATRIX_WMMA_GFX12 1
#elif defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__) || defined(MATRIX_LIKE_GFX942)
#define MATRIX_MFMA 1
#elif defined(__gfx908__) && !defined(ELEMENT_BF16)  // its bf16 instruction takes 8 along k
#define MATRIX_MFMA 1
#else
#define MATRIX_FMA 1
#endif

// Precedes a loop over products along k. One product in plain arithmetic is so much work that unrolling only
// costs registers.
#if defined(MATRIX_FMA)
#define UNROLL_PRODUCTS _Pragma("unroll 1")
#undef BLOCKS_PER_MULTIPROCESSOR
#define BLOCKS_PER_MULTIPROCESSOR 2  // else a few registers are spilled (sm_80, sm_90)
#else
#define UNROLL_PRODUCTS _Pragma("unroll")
#endif

DEVICE int lane_index() {
  return thread_index() % WAVE;
}
// Uniform over all lanes, which AMD's compilers cannot infer.
DEVICE int wave_index() {
#if defined(__AMDGCN__)
  return __builtin_amdgcn_readfirstlane(thread_index() / WAVE);
#else
  return thread_index() / WAVE;
#endif
}

#if defined(MATRIX_MMA_SYNC)
// Two m16n8k16 products side by side. Lane = 4*group + quarter holds rows group and group + 8, columns
// 2*quarter and 2*quarter + 1 of each half.
constexpr int ACCUMULATORS = 8;
constexpr int ROW_SLOTS = 2;
struct FragmentA {
  uint32 word[4];
};
struct FragmentB {
  uint32 word[4];
};
struct Accumulator {
  float value[ACCUMULATORS];
};
DEVICE int accumulator_row(int i) {
  return lane_index() / 4 + 8 * (i / 2 % 2);
}
DEVICE int accumulator_column(int i) {
  return 8 * (i / 4) + 2 * (lane_index() % 4) + i % 2;
}
DEVICE constexpr int row_slot(int i) {
  return i / 2 % 2;
}
DEVICE float row_sum(float x) {
  x += wave_xor(x, 1);
  return x + wave_xor(x, 2);
}
DEVICE float row_max(float x) {
  x = maximum(x, wave_xor(x, 1));
  return maximum(x, wave_xor(x, 2));
}
DEVICE void load_matrices(uint32* word, uint32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
               : "r"(row)
               : "memory");
}
DEVICE void load_matrices(uint32* word, const Element* row) {
  load_matrices(word, shared_address(row));
}
DEVICE FragmentA load_a(const Element* tile, int stride) {
  FragmentA a;
  int lane = lane_index();
  load_matrices(a.word, tile + (lane % 16) * stride + 8 * (lane / 16));
  return a;
}
DEVICE FragmentB load_b(const Element* tile, int stride) {
  FragmentB b;
  int lane = lane_index();
  load_matrices(b.word, tile + (lane % 8 + 8 * (lane / 16)) * stride + 8 * (lane / 8 % 2));
  return b;
}
// The same for a tile stored as [k][column].
DEVICE FragmentB load_b_transposed(const Element* tile, int stride) {
  FragmentB b;
  int lane = lane_index();
  const Element* row = tile + (lane % 16) * stride + 8 * (lane / 16);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(b.word[0]), "=r"(b.word[1]), "=r"(b.word[2]), "=r"(b.word[3])
               : "r"(shared_address(row))
               : "memory");
  return b;
}
#if defined(ELEMENT_BF16)
#define MMA_SYNC "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
#else
#define MMA_SYNC "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
#endif
DEVICE void multiply(Accumulator& c, const FragmentA& a, const FragmentB& b) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float* d = c.value + 4 * half;
    asm volatile(MMA_SYNC " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "r"(b.word[2 * half]),
                   "r"(b.word[2 * half + 1]));
  }
}
// The accumulator has the layout of a: a product can be an operand of the next one without leaving registers.
#define ACCUMULATOR_IS_A 1
DEVICE uint32 pack_pair(float low, float high) {
  uint32 pair;
#if defined(ELEMENT_BF16)
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
#else
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
#endif
  return pair;
}
DEVICE Accumulator load_accumulator(const Element* tile, int stride) {
  uint32 word[4];
  int lane = lane_index();
  load_matrices(word, tile + (lane % 16) * stride + 8 * (lane / 16));
  Accumulator c;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    Element low, high;
    low.bits = (uint16)word[i];
    high.bits = (uint16)(word[i] >> 16);
    c.value[2 * i] = to_float(low);
    c.value[2 * i + 1] = to_float(high);
  }
  return c;
}
DEVICE void store_accumulator(Element* tile, int stride, const Accumulator& c) {
#pragma unroll
  for (int i = 0; i < ACCUMULATORS; i += 2)
    *(uint32*)(tile + accumulator_row(i) * stride + accumulator_column(i)) =
        pack_pair(c.value[i], c.value[i + 1]);
}
DEVICE FragmentA fragment_of(const Accumulator& c) {
  FragmentA a;
  a.word[0] = pack_pair(c.value[0], c.value[1]);
  a.word[1] = pack_pair(c.value[2], c.value[3]);
  a.word[2] = pack_pair(c.value[4], c.value[5]);
  a.word[3] = pack_pair(c.value[6], c.value[7]);
  return a;
}

#elif defined(MATRIX_FMA)
// Lane l holds column l % 16; its rows are WAVE / 16 apart. A fragment of a is just the address of its tile.
constexpr int ACCUMULATORS = 256 / WAVE;
constexpr int ROW_SLOTS = ACCUMULATORS;
struct FragmentA {
  const Element* tile;
  int stride;
};
struct FragmentB {
  float value[16];
};
struct Accumulator {
  float value[ACCUMULATORS];
};
DEVICE int accumulator_row(int i) {
  return (WAVE / 16) * i + lane_index() / 16;
}
DEVICE int accumulator_column(int) {
  return lane_index() % 16;
}
DEVICE constexpr int row_slot(int i) {
  return i;
}
DEVICE FragmentA load_a(const Element* tile, int stride) {
  return FragmentA{tile, stride};
}
DEVICE FragmentB load_b(const Element* tile, int stride) {
  FragmentB b;
  const Element* row = tile + (lane_index() % 16) * stride;
#pragma unroll
  for (int k = 0; k < 16; k += CHUNK) read_chunk(b.value + k, row + k);
  return b;
}
DEVICE FragmentB load_b_transposed(const Element* tile, int stride) {
  FragmentB b;
#pragma unroll
  for (int k = 0; k < 16; k++) b.value[k] = to_float(tile[k * stride + lane_index() % 16]);
  return b;
}
DEVICE void multiply(Accumulator& c, const FragmentA& a, const FragmentB& b) {
#pragma unroll
  for (int i = 0; i < ACCUMULATORS; i++) {
    float row[16];
    const Element* from = a.tile + accumulator_row(i) * a.stride;
#pragma unroll
    for (int k = 0; k < 16; k += CHUNK) read_chunk(row + k, from + k);
    float sum = c.value[i];
#pragma unroll
    for (int k = 0; k < 16; k++) sum += row[k] * b.value[k];
    c.value[i] = sum;
  }
#if defined(__AMDGCN__)
  // No interleaved products: they spill (bf16 on gfx1030). ROCm 10 moves plain arithmetic past the barrier.
#pragma unroll
  for (int i = 0; i < ACCUMULATORS; i++) asm volatile("" : "+v"(c.value[i]));
  __builtin_amdgcn_sched_barrier(0);
#endif
}

#else  // AMD matrix units
#if defined(ELEMENT_BF16)
typedef short Lane16;  // the builtins take bf16 as 16-bit integers
#else
typedef _Float16 Lane16;
#endif
typedef Lane16 Lanes4 __attribute__((ext_vector_type(4)));
typedef Lane16 Lanes8 __attribute__((ext_vector_type(8)));
typedef Lane16 Lanes16 __attribute__((ext_vector_type(16)));
typedef float Floats4 __attribute__((ext_vector_type(4)));
typedef float Floats8 __attribute__((ext_vector_type(8)));

#if defined(MATRIX_MFMA)
constexpr int ACCUMULATORS = 4;
typedef Lanes4 Operand;
typedef Floats4 Sums;
constexpr int K_SPAN = 4;  // consecutive k in a lane
DEVICE int accumulator_row(int i) {
  return i + 4 * (lane_index() / 16);
}
DEVICE int first_k() {
  return 4 * (lane_index() / 16);
}
#if defined(ELEMENT_BF16)
#define MATRIX_UNIT(a, b, c) __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, 0, 0, 0)
#else
#define MATRIX_UNIT(a, b, c) __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, 0, 0, 0)
#endif
// gfx950 multiplies 32 along k, 8 in a lane, in the same time as 16.
#if defined(__gfx950__) && defined(ELEMENT_BF16)
typedef __bf16 SpanLanes __attribute__((ext_vector_type(8)));
#define MFMA_SPAN(a, b, c) __builtin_amdgcn_mfma_f32_16x16x32_bf16(a, b, c, 0, 0, 0)
#elif defined(__gfx950__)
typedef Lanes8 SpanLanes;
#define MFMA_SPAN(a, b, c) __builtin_amdgcn_mfma_f32_16x16x32_f16(a, b, c, 0, 0, 0)
#endif
#elif defined(MATRIX_WMMA_GFX12)
constexpr int ACCUMULATORS = 8;
typedef Lanes8 Operand;
typedef Floats8 Sums;
constexpr int K_SPAN = 8;
DEVICE int accumulator_row(int i) {
  return i + 8 * (lane_index() / 16);
}
DEVICE int first_k() {
  return 8 * (lane_index() / 16);
}
#if defined(ELEMENT_BF16)
#define MATRIX_UNIT(a, b, c) __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a, b, c)
#else
#define MATRIX_UNIT(a, b, c) __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, c)
#endif
#else  // gfx11: lanes 16 to 31 repeat the operands of lanes 0 to 15
constexpr int ACCUMULATORS = 8;
typedef Lanes16 Operand;
typedef Floats8 Sums;
constexpr int K_SPAN = 16;
DEVICE int accumulator_row(int i) {
  return 2 * i + lane_index() / 16;
}
DEVICE int first_k() {
  return 0;
}
#if defined(ELEMENT_BF16)
#define MATRIX_UNIT(a, b, c) __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, c)
#else
#define MATRIX_UNIT(a, b, c) __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c)
#endif
#endif

constexpr int ROW_SLOTS = ACCUMULATORS;
struct FragmentA {
  Operand lanes;
};
struct FragmentB {
  Operand lanes;
};
struct Accumulator {
  float value[ACCUMULATORS];
};
DEVICE int accumulator_column(int) {
  return lane_index() % 16;
}
DEVICE constexpr int row_slot(int i) {
  return i;
}
// The vector types are aligned to 32 bytes, rows in shared memory to 16 (to 8 for MFMA's four elements).
DEVICE Operand load_lanes(const Element* tile, int stride) {
  typedef Operand Unaligned __attribute__((aligned(K_SPAN == 4 ? 8 : 16)));
  return *(const Unaligned*)(tile + (lane_index() % 16) * stride + first_k());
}
DEVICE FragmentA load_a(const Element* tile, int stride) {
  return FragmentA{load_lanes(tile, stride)};
}
DEVICE FragmentB load_b(const Element* tile, int stride) {
  return FragmentB{load_lanes(tile, stride)};
}
DEVICE FragmentB load_b_transposed(const Element* tile, int stride) {
  FragmentB b;
  const Lane16* from = (const Lane16*)(tile + first_k() * stride + lane_index() % 16);
#pragma unroll
  for (int k = 0; k < K_SPAN; k++) b.lanes[k] = from[k * stride];
  return b;
}
DEVICE void multiply(Accumulator& c, const FragmentA& a, const FragmentB& b) {
  Sums sums;
#pragma unroll
  for (int i = 0; i < ACCUMULATORS; i++) sums[i] = c.value[i];
  sums = MATRIX_UNIT(a.lanes, b.lanes, sums);
#pragma unroll
  for (int i = 0; i < ACCUMULATORS; i++) c.value[i] = sums[i];
}
#endif

#if !defined(MATRIX_MMA_SYNC)
#define ACCUMULATOR_IS_A 0
// 16 neighbouring lanes share a row.
DEVICE float row_sum(float x) {
#pragma unroll
  for (int mask = 8; mask > 0; mask >>= 1) x += wave_xor(x, mask);
  return x;
}
DEVICE float row_max(float x) {
#pragma unroll
  for (int mask = 8; mask > 0; mask >>= 1) x = maximum(x, wave_xor(x, mask));
  return x;
}
#endif

#if !defined(MATRIX_MMA_SYNC)
DEVICE Accumulator load_accumulator(const Element* tile, int stride) {
  Accumulator c;
#pragma unroll
  for (int i = 0; i < ACCUMULATORS; i++)
    c.value[i] = to_float(tile[accumulator_row(i) * stride + accumulator_column(i)]);
  return c;
}
DEVICE void store_accumulator(Element* tile, int stride, const Accumulator& c) {
#pragma unroll
  for (int i = 0; i < ACCUMULATORS; i++)
    tile[accumulator_row(i) * stride + accumulator_column(i)] = to_element(c.value[i]);
}
#endif

DEVICE void clear(Accumulator& c) {
#pragma unroll
  for (int i = 0; i < ACCUMULATORS; i++) c.value[i] = 0.0f;
}

#if FORMAT == E4M3
// The same product for elements that are pairs of e4m3 numbers (e4m3.h): 32 along k.
#if defined(MATRIX_MMA_SYNC)
DEVICE void multiply_pairs(Accumulator& c, const FragmentA& a, const FragmentB& b) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float* d = c.value + 4 * half;
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "r"(b.word[2 * half]),
          "r"(b.word[2 * half + 1]));
  }
}
#elif defined(MATRIX_MFMA) || defined(MATRIX_WMMA_GFX12)
DEVICE void multiply_pairs(Accumulator& c, const FragmentA& a, const FragmentB& b) {
  Sums sums;
#pragma unroll
  for (int i = 0; i < ACCUMULATORS; i++) sums[i] = c.value[i];
#if defined(MATRIX_MFMA)
  sums = __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(__builtin_bit_cast(long, a.lanes),
                                                    __builtin_bit_cast(long, b.lanes), sums, 0, 0, 0);
#else
  // The unit takes 16 along k per instruction: the lower half of each lane's bytes, then the upper one.
  typedef int Words2 __attribute__((ext_vector_type(2)));
  typedef int Words4 __attribute__((ext_vector_type(4)));
  const Words4 x = __builtin_bit_cast(Words4, a.lanes), y = __builtin_bit_cast(Words4, b.lanes);
  sums = __builtin_amdgcn_wmma_f32_16x16x16_fp8_fp8_w32_gfx12(Words2{x[0], x[1]}, Words2{y[0], y[1]}, sums);
  sums = __builtin_amdgcn_wmma_f32_16x16x16_fp8_fp8_w32_gfx12(Words2{x[2], x[3]}, Words2{y[2], y[3]}, sums);
#endif
#pragma unroll
  for (int i = 0; i < ACCUMULATORS; i++) c.value[i] = sums[i];
}
#endif
#endif
