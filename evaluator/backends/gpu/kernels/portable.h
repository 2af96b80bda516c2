// SPDX-License-Identifier: GPL-3.0-or-later
// The compiler-dependent functions of the kernels, for each supported compiler:
//   NVRTC (NVIDIA),
//   hipRTC or clang (AMD; no ROCm header is needed),
//   C++ compilers, for CPU fibers (tests/hip_runtime).
//
// A block is one-dimensional; its threads run in waves (warps) of WAVE lanes. A KERNEL(name, ALONE(threads))
// may use all registers, because one block of it fills a multiprocessor. Elements are stored as ELEMENT_FP16,
// ELEMENT_BF16 or ELEMENT_FP32 (the host defines one); arithmetic is float.
#pragma once

typedef unsigned short uint16;
typedef unsigned int uint32;
typedef unsigned long long uint64;

// The 8-bit format (e4m3.h): a kernel's FORMAT is that of its product's operands, ROUND that of its results;
// 0 means elements.
#define E4M3 1

// For NVIDIA only: the number of blocks that a multiprocessor should hold, 0 for the compiler's choice. ptxas
// tends to spill a register or two for one more block. A kernel redefines this before KERNEL to let ptxas use
// the registers that this many blocks leave.
#define BLOCKS_PER_MULTIPROCESSOR 0

#if defined(WAVEFRONT_CPU)
// fibers.h, included before this file, defines the same names as the branches below.

#elif defined(__CUDACC__)
#define WAVE 32
#define DEVICE static __device__ __forceinline__
#define KERNEL(name, threads) \
  extern "C" __global__ void __launch_bounds__(threads, BLOCKS_PER_MULTIPROCESSOR) name
#define ALONE(threads) threads, 1
#define SHARED __shared__
#define DYNAMIC_SHARED(name) extern __shared__ __align__(1024) char name[]
DEVICE int thread_index() {
  return threadIdx.x;
}
DEVICE int block_x() {
  return blockIdx.x;
}
DEVICE int block_y() {
  return blockIdx.y;
}
DEVICE int block_z() {
  return blockIdx.z;
}
DEVICE void block_sync() {
  __syncthreads();
}
DEVICE float wave_xor(float value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}
DEVICE float exp2_fast(float x) {
  float result;  // exp2f would spend instructions on denormal results
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
DEVICE float divide_fast(float a, float b) {
  return __fdividef(a, b);
}
DEVICE float reciprocal_sqrt(float x) {
  return rsqrtf(x);
}
DEVICE float maximum(float a, float b) {
  return fmaxf(a, b);
}
DEVICE float minimum(float a, float b) {
  return fminf(a, b);
}

#else  // AMD
#if defined(__GFX9__)
#define WAVE 64
#else
#define WAVE 32
#endif
#define DEVICE static __attribute__((device)) inline __attribute__((always_inline))
#define KERNEL(name, threads) \
  extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(1, threads))) void name
#define ALONE(threads) threads
#define SHARED __attribute__((shared))
#define DYNAMIC_SHARED(name) extern __attribute__((shared)) __attribute__((aligned(1024))) char name[]
DEVICE int thread_index() {
  return __builtin_amdgcn_workitem_id_x();
}
DEVICE int block_x() {
  return __builtin_amdgcn_workgroup_id_x();
}
DEVICE int block_y() {
  return __builtin_amdgcn_workgroup_id_y();
}
DEVICE int block_z() {
  return __builtin_amdgcn_workgroup_id_z();
}
DEVICE void block_sync() {
  // The threads of a block share only LDS here, so only LDS is fenced, and no cache is invalidated.
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
  // The fence implies this wait, but clang-19 drops it from a barrier at the head of a loop: it looks at what
  // is in flight before the loop, and not at the stores that end a turn.
#if defined(__GFX12__)
  asm volatile("s_wait_dscnt 0x0");
#else
  asm volatile("s_waitcnt lgkmcnt(0)");
#endif
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
}
DEVICE int lane_of_wave() {
#if WAVE == 64
  return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u));
#else
  return __builtin_amdgcn_mbcnt_lo(~0u, 0u);
#endif
}
DEVICE float wave_xor(float value, int mask) {
  int lane = lane_of_wave() ^ mask;
  return __builtin_bit_cast(float, __builtin_amdgcn_ds_bpermute(lane << 2, __builtin_bit_cast(int, value)));
}
DEVICE float exp2_fast(float x) {
  return __builtin_amdgcn_exp2f(x);
}
DEVICE float divide_fast(float a, float b) {
  return a * __builtin_amdgcn_rcpf(b);
}
DEVICE float reciprocal_sqrt(float x) {
  return __builtin_amdgcn_rsqf(x);
}
DEVICE float maximum(float a, float b) {
  return __builtin_fmaxf(a, b);
}
DEVICE float minimum(float a, float b) {
  return __builtin_fminf(a, b);
}
#endif

DEVICE float exp_fast(float x) {
  return exp2_fast(x * 1.4426950408889634f);
}

// Sum over the lanes of a wave; every lane gets the result.
DEVICE float wave_sum(float value) {
#pragma unroll
  for (int mask = WAVE / 2; mask > 0; mask >>= 1) value += wave_xor(value, mask);
  return value;
}

// --- stored elements ---

#if defined(ELEMENT_FP32)
typedef float Element;
DEVICE float to_float(Element x) {
  return x;
}
DEVICE Element to_element(float x) {
  return x;
}

#elif defined(ELEMENT_BF16)
struct Element {
  uint16 bits;
};
DEVICE float to_float(Element x) {
  union {
    uint32 bits;
    float value;
  } u;
  u.bits = (uint32)x.bits << 16;
  return u.value;
}
DEVICE Element to_element(float x) {
  union {
    uint32 bits;
    float value;
  } u;
  u.value = x;
  Element result;
  // Round to nearest, ties to even. NaN stays NaN because its payload's upper half is not zero.
  result.bits = x != x ? (uint16)0x7fc0 : (uint16)((u.bits + 0x7fff + ((u.bits >> 16) & 1)) >> 16);
  return result;
}

#else  // ELEMENT_FP16
struct Element {
  uint16 bits;
};
#if defined(__CUDACC__)
DEVICE float to_float(Element x) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x.bits));
  return value;
}
DEVICE Element to_element(float x) {
  Element result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
  return result;
}
#else
DEVICE float to_float(Element x) {
  union {
    uint16 bits;
    _Float16 value;
  } u;
  u.bits = x.bits;
  return (float)u.value;
}
DEVICE Element to_element(float x) {
  union {
    uint16 bits;
    _Float16 value;
  } u;
  u.value = (_Float16)x;
  Element result;
  result.bits = u.bits;
  return result;
}
#endif
#endif

// 16 bytes, a chunk: the unit that one thread moves. Elements are accessed through this type, so AMD and CPU
// compilers get -fno-strict-aliasing.
constexpr int CHUNK = 16 / (int)sizeof(Element);
struct alignas(16) Bits128 {
  uint32 word[4];
};
struct alignas(8) Bits64 {
  uint32 word[2];
};

// Reads 16 bytes of device memory. AMD's compilers lose the address space of a pointer that can be null, and
// would use a flat load, which also occupies and waits for the LDS.
DEVICE Bits128 read_global(const void* from) {
#if defined(__AMDGCN__)
  typedef uint32 Words __attribute__((ext_vector_type(4)));
  return __builtin_bit_cast(Bits128, *(const __attribute__((address_space(1))) Words*)from);
#else
  return *(const Bits128*)from;
#endif
}

// The same at `offset` bytes behind `base`, which is uniform over all threads. AMD's instructions add the
// two; but in a loop AMD's compilers would widen the offset outside of it and add it themselves.
DEVICE Bits128 read_global(const char* base, uint32& offset) {
#if defined(__AMDGCN__)
  typedef uint32 Words __attribute__((ext_vector_type(4)));
  const __attribute__((address_space(1))) char* from = (const __attribute__((address_space(1))) char*)base;
  asm volatile("" : "+v"(offset));
  return __builtin_bit_cast(Bits128, *(const __attribute__((address_space(1))) Words*)(from + offset));
#else
  return read_global(base + offset);
#endif
}

DEVICE void copy_chunk(Element* to, const Element* from) {
  *(Bits128*)to = *(const Bits128*)from;
}
DEVICE void zero_chunk(Element* to) {
  *(Bits128*)to = Bits128{{0, 0, 0, 0}};
}
DEVICE void read_chunk(float* to, const Element* from) {
  Bits128 bits = *(const Bits128*)from;
  const Element* elements = (const Element*)&bits;
#pragma unroll
  for (int i = 0; i < CHUNK; i++) to[i] = to_float(elements[i]);
}
// CHUNK floats, 16-byte aligned.
DEVICE void read_floats(float* to, const float* from) {
#pragma unroll
  for (int i = 0; i < CHUNK; i += 4) {
    Bits128 bits = *(const Bits128*)(from + i);
    const float* values = (const float*)&bits;
#pragma unroll
    for (int j = 0; j < 4; j++) to[i + j] = values[j];
  }
}
DEVICE void write_chunk(Element* to, const float* from) {
  Bits128 bits;
  Element* elements = (Element*)&bits;
#pragma unroll
  for (int i = 0; i < CHUNK; i++) elements[i] = to_element(from[i]);
  *(Bits128*)to = bits;
}

// --- asynchronous copies to shared memory (cp.async) ---

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define ASYNC_COPY 1
DEVICE uint32 shared_address(const void* pointer) {
  return (uint32)__cvta_generic_to_shared(pointer);
}
// Copies 16 bytes, or zeros if !valid. The L2 cache fetches 128, because the neighbours are needed soon.
DEVICE void copy_async(void* shared, const void* global, bool valid) {
  int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
               "l"(global), "r"(bytes)
               : "memory");
}
DEVICE void copy_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int PENDING>
DEVICE void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
#else
#define ASYNC_COPY 0
#endif

// --- programmatic dependent launch; no effect on hardware without it ---
// Every kernel begins with start_kernel, after which the next kernel of the stream may use free resources.
// All work that depends on the previous kernel (everything but the weights) comes after
// wait_for_previous_kernel, which returns when that kernel has ended and its results are visible.

DEVICE void start_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
DEVICE void wait_for_previous_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
