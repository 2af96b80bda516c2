// SPDX-License-Identifier: GPL-3.0-or-later
// The instructions that only NVIDIA's sm_90a has, as functions: the tensor memory accelerator (TMA), barriers
// in shared memory that count its bytes (mbarrier), clusters of blocks with access to each other's shared
// memory, and wgmma, the matrix instruction of a warpgroup (four waves, 128 threads). Names in the comments
// are those of the PTX ISA manual, 8.0 and newer.
#pragma once
#include "e4m3.h"

#if !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#error "needs --gpu-architecture=sm_90a"
#endif

// --- barriers (mbarrier); addresses are of shared memory, phases alternate between 0 and 1 ---

DEVICE void barrier_init(uint32 barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Makes initialised barriers visible to the other blocks of the cluster and to the TMA.
DEVICE void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// Arrives once, and adds `bytes` that the TMA must transfer before the phase is complete.
DEVICE void barrier_arrive_expect(uint32 barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
DEVICE void barrier_wait(uint32 barrier, uint32 phase) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(barrier),
      "r"(phase)
      : "memory");
}
// Arrives at the same barrier of another block of the cluster, in threads with `valid`.
DEVICE void barrier_arrive_in_cluster_if(uint32 barrier, uint32 block, bool valid) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      ".reg .b32 there;\n"
      "setp.ne.b32 p, %2, 0;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "@p mbarrier.arrive.shared::cluster.b64 _, [there];\n"
      "}\n" ::"r"(barrier),
      "r"(block), "r"((int)valid)
      : "memory");
}
// Arrives at a barrier of this block, in threads with `valid`.
DEVICE void barrier_arrive_if(uint32 barrier, bool valid) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %1, 0;\n"
      "@p mbarrier.arrive.shared::cta.b64 _, [%0];\n"
      "}\n" ::"r"(barrier),
      "r"((int)valid)
      : "memory");
}
// Makes this thread's stores to shared memory visible to wgmma and the TMA (the async proxy).
DEVICE void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// Stores two floats at the same address of another block's shared memory; its barrier counts their 8 bytes.
DEVICE void store_pair_in_cluster(uint32 to, uint32 barrier, uint32 block, float first, float second) {
  asm volatile(
      "{\n"
      ".reg .b32 there, counted;\n"
      "mapa.shared::cluster.u32 there, %0, %2;\n"
      "mapa.shared::cluster.u32 counted, %1, %2;\n"
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [there], {%3, %4}, [counted];\n"
      "}\n" ::"r"(to),
      "r"(barrier), "r"(block), "f"(first), "f"(second)
      : "memory");
}

// --- clusters ---

DEVICE uint32 rank_in_cluster() {
  uint32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
DEVICE void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// --- exchange between blocks of different clusters, via global memory (the L2 cache) ---

DEVICE void store_to_l2(float2* to, float first, float second) {
  asm volatile("st.global.cg.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(first), "f"(second) : "memory");
}
DEVICE float2 load_from_l2(const float2* from) {
  float2 pair;
  asm volatile("ld.global.cg.v2.f32 {%0, %1}, [%2];" : "=f"(pair.x), "=f"(pair.y) : "l"(from) : "memory");
  return pair;
}
// Arrives once; other blocks then see the writes of this thread and of those it has synchronised with.
DEVICE void arrive_in_global(uint32* arrivals) {
  asm volatile("fence.acq_rel.gpu;\nred.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(arrivals) : "memory");
}
DEVICE void wait_in_global(const uint32* arrivals, uint32 count) {
  uint32 seen;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(arrivals) : "memory");
  } while (seen < count);
}
// Counts the blocks that no longer need the arrivals, in the word behind them. The last of `blocks` resets
// both counters to 0 for the next launch.
DEVICE void leave_in_global(uint32* arrivals, uint32 blocks) {
  if (atomicInc(arrivals + 1, blocks - 1) == blocks - 1) *arrivals = 0;
}

// --- the tensor memory accelerator ---

// A TMA descriptor as cuTensorMapEncodeTiled fills it on the host. Kernels take it as a parameter declared
// const __grid_constant__.
struct alignas(64) TensorMap {
  uint64 opaque[16];
};

DEVICE void tma_prefetch_descriptor(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
// Loads a two-dimensional box, whose first element is at (x, y), into shared memory; `barrier` counts its
// bytes. With a multicast_mask (a bit for each block of the cluster) all those blocks get it, at the same
// address and counted by their own barriers.
DEVICE void tma_load_2d(uint32 to, const TensorMap& map, uint32 barrier, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%3, %4}], [%2];" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(x), "r"(y)
      : "memory");
}
DEVICE void tma_load_2d(uint32 to, const TensorMap& map, uint32 barrier, int x, int y, int multicast_mask) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(x), "r"(y), "h"((uint16)multicast_mask)
      : "memory");
}
// The same for a box of four dimensions at (x, 0, 0, z).
DEVICE void tma_load_4d(uint32 to, const TensorMap& map, uint32 barrier, int x, int z) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%3, %5, %5, %4}], [%2];" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(x), "r"(z), "r"(0)
      : "memory");
}
DEVICE void tma_load_4d(uint32 to, const TensorMap& map, uint32 barrier, int x, int z, int multicast_mask) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%3, %6, %6, %4}], [%2], %5;" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(x), "r"(z), "h"((uint16)multicast_mask), "r"(0)
      : "memory");
}
// The same for a box of five dimensions at (x, 0, 0, 0, z).
DEVICE void tma_load_5d(uint32 to, const TensorMap& map, uint32 barrier, int x, int z) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%3, %5, %5, %5, %4}], [%2];" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(x), "r"(z), "r"(0)
      : "memory");
}
DEVICE void tma_load_5d(uint32 to, const TensorMap& map, uint32 barrier, int x, int z, int multicast_mask) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%3, %6, %6, %6, %4}], [%2], %5;" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(x), "r"(z), "h"((uint16)multicast_mask), "r"(0)
      : "memory");
}
// Loads the 128 bytes around an address into the L2 cache. The TMA is slow with many small pieces.
DEVICE void prefetch_to_l2(const void* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from) : "memory");
}

// --- predicated loads and stores of 16 or 8 bytes of global memory ---
// They have no branch: if accumulators of a wgmma are used in diverging code, the compiler waits for that
// wgmma at once.

DEVICE Bits128 load_if(const void* from, bool valid) {
  Bits128 bits;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %5, 0;\n"
      "mov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;\n"
      "@p ld.global.v4.b32 {%0, %1, %2, %3}, [%4];\n"
      "}\n"
      : "=r"(bits.word[0]), "=r"(bits.word[1]), "=r"(bits.word[2]), "=r"(bits.word[3])
      : "l"(from), "r"((int)valid)
      : "memory");
  return bits;
}
DEVICE void store_if(void* to, const Bits128& bits, bool valid) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %5, 0;\n"
      "@p st.global.v4.b32 [%4], {%0, %1, %2, %3};\n"
      "}\n" ::"r"(bits.word[0]),
      "r"(bits.word[1]), "r"(bits.word[2]), "r"(bits.word[3]), "l"(to), "r"((int)valid)
      : "memory");
}
DEVICE void store_if(void* to, const Bits64& bits, bool valid) {
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %3, 0;\n"
      "@p st.global.v2.b32 [%2], {%0, %1};\n"
      "}\n" ::"r"(bits.word[0]),
      "r"(bits.word[1]), "l"(to), "r"((int)valid)
      : "memory");
}

// --- shared memory by its address ---

DEVICE void store_shared(uint32 to, const Bits128& bits) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(bits.word[0]), "r"(bits.word[1]),
               "r"(bits.word[2]), "r"(bits.word[3])
               : "memory");
}
// Two floats that are constant while the kernel runs.
DEVICE float2 load_constant_pair(const float* from) {
  float2 pair;
  asm volatile("ld.global.nc.v2.f32 {%0, %1}, [%2];" : "=f"(pair.x), "=f"(pair.y) : "l"(from));
  return pair;
}

// --- registers of a warpgroup, and barriers for some threads of a block ---

template <int REGISTERS>
DEVICE void warpgroup_reg_dealloc() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS>
DEVICE void warpgroup_reg_alloc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
DEVICE void named_barrier_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// --- wgmma: c [64][N] += a [64][16] b [N][16]^T by a warpgroup, both operands from shared memory ---
// c: N / 2 floats per thread. For each 8 columns j, thread 32 w + 4 g + q holds columns 2 q and 2 q + 1 in
// row 16 w + g (c[4 j], c[4 j + 1]) and in row 16 w + g + 8 (c[4 j + 2], c[4 j + 3]).

// Matrix descriptor of rows of 128 bytes in the TMA's 128-byte swizzle; 8 rows are 1024 bytes.
DEVICE uint64 matrix_descriptor(uint32 address) {
  return (uint64)(address >> 4 & 0x3fff) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
// Matrix descriptor of rows of 64 bytes in the 64-byte swizzle: 16-byte part c of row r is at part c ^ r / 2
// % 4. 8 rows are 512 bytes, aligned to 512. A row is one of [N][k], or of [k][N] for b transposed.
DEVICE uint64 matrix_descriptor_64b(uint32 address) {
  return (uint64)(address >> 4 & 0x3fff) | 32ull << 16 | 32ull << 32 | 2ull << 62;
}
DEVICE void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
DEVICE void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int PENDING>
DEVICE void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

#if defined(ELEMENT_BF16)
#define WGMMA_TYPES "f32.bf16.bf16"
#else
#define WGMMA_TYPES "f32.f16.f16"
#endif
// Lists of an instruction's operands, "%0, %1, " and so on, and of their values, floats.
#define OPERAND(number) "%" #number ", "
#define FIVE(tens, a, b, c, d, e) \
  OPERAND(tens##a) OPERAND(tens##b) OPERAND(tens##c) OPERAND(tens##d) OPERAND(tens##e)
#define TEN(tens) FIVE(tens, 0, 1, 2, 3, 4) FIVE(tens, 5, 6, 7, 8, 9)
#define TO_30 TEN() TEN(1) TEN(2)
#define TO_60 TO_30 TEN(3) TEN(4) TEN(5)
#define TO_90 TO_60 TEN(6) TEN(7) TEN(8)
#define EIGHT(c, i)                                                                           \
  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), \
      "+f"(c[i + 6]), "+f"(c[i + 7])
#define THIRTY_TWO(c, i) EIGHT(c, i), EIGHT(c, i + 8), EIGHT(c, i + 16), EIGHT(c, i + 24)
#define SET_PREDICATE(flag) ".reg .pred p;\nsetp.ne.b32 p, %" #flag ", 0;\n"
#define WGMMA_OF(n) "wgmma.mma_async.sync.aligned.m64n" #n "k16." WGMMA_TYPES
#define WGMMA_E4M3_OF(n) "wgmma.mma_async.sync.aligned.m64n" #n "k32.f32.e4m3.e4m3"
#define WGMMA_BY(of, modes, flag, n, sums, a, b) \
  "{\n" SET_PREDICATE(flag) of(n) " {" sums "}, %" #a ", %" #b ", p" modes ";\n}\n"
#define WGMMA(flag, n, sums, a, b) WGMMA_BY(WGMMA_OF, ", 1, 1, 0, 0", flag, n, sums, a, b)
#define WGMMA_E4M3(flag, n, sums, a, b) WGMMA_BY(WGMMA_E4M3_OF, ", 1, 1", flag, n, sums, a, b)

// accumulate: add to c instead of replacing it. OF: if E4M3, an element of a and b is a pair of e4m3 numbers
// (e4m3.h), so the same bytes are 32 along k.
template <int N, int OF = 0>
DEVICE void wgmma(float (&c)[N / 2], uint64 a, uint64 b, bool accumulate) {
#define WGMMA_INTO(of, flag, n, sums, x, y, ...) \
  asm volatile(of(flag, n, sums, x, y) : __VA_ARGS__ : "l"(a), "l"(b), "r"((int)accumulate))
#define WGMMA_64(of) WGMMA_INTO(of, 34, 64, TO_30 "%30, %31", 32, 33, THIRTY_TWO(c, 0))
#define WGMMA_128(of) \
  WGMMA_INTO(of, 66, 128, TO_60 "%60, %61, %62, %63", 64, 65, THIRTY_TWO(c, 0), THIRTY_TWO(c, 32))
#define WGMMA_192(of)                                                                                        \
  WGMMA_INTO(of, 98, 192, TO_90 "%90, %91, %92, %93, %94, %95", 96, 97, THIRTY_TWO(c, 0), THIRTY_TWO(c, 32), \
             THIRTY_TWO(c, 64))
  if constexpr (N == 64 && OF == 0) WGMMA_64(WGMMA);
  if constexpr (N == 128 && OF == 0) WGMMA_128(WGMMA);
  if constexpr (N == 128 && OF == E4M3) WGMMA_128(WGMMA_E4M3);
  if constexpr (N == 64 && OF == E4M3) WGMMA_64(WGMMA_E4M3);
  if constexpr (N == 192 && OF == 0) WGMMA_192(WGMMA);
  if constexpr (N == 192 && OF == E4M3) WGMMA_192(WGMMA_E4M3);
}
// c [64][32] += a [64][16] b [16][32] with a in registers and b transposed. Each wave holds 16 rows of a in
// the layout of mma.sync.
DEVICE void wgmma_from_registers(float (&c)[16], const uint32 (&a)[4], uint64 b, bool accumulate) {
  asm volatile(
      "{\n" SET_PREDICATE(21) WGMMA_OF(32) " {" TEN() "%10, %11, %12, %13, %14, %15}, "
      "{%16, %17, %18, %19}, %20, p, 1, 1, 1;\n}\n"
      : EIGHT(c, 0), EIGHT(c, 8)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)accumulate));
}
