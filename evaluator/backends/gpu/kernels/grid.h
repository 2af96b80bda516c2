// SPDX-License-Identifier: GPL-3.0-or-later
// Synchronisation between the blocks of one launch. All of them must be resident at once (a cooperative
// launch): otherwise resident blocks would wait forever for one that has not begun.
//
// Counters in device memory count the finished tiles of each phase of the work. `signal` makes all writes of
// the block visible and counts one tile. `await` returns once a phase is complete, and data written before
// those signals can be read. Counters are zero before and after a launch.
#pragma once
#include "portable.h"

#if defined(WAVEFRONT_CPU)
// fibers.h defines the rest: `grid_pause` lets the other blocks run, `wave_sync` is exact.
static const bool runs_together = fibers::whole_grid = true;
DEVICE void grid_release() {}
DEVICE void grid_acquire() {}
DEVICE uint32 counter_add(uint32* counter) {
  return (*counter)++;
}
DEVICE uint32 counter_read(const uint32* counter) {
  return *(const volatile uint32*)counter;
}

#elif defined(__CUDACC__)
// A barrier of the block and the fence of one thread order the writes of all threads of the block.
DEVICE void grid_release() {}
DEVICE void grid_acquire() {}
DEVICE uint32 counter_add(uint32* counter) {
  uint32 before;
  asm volatile("fence.acq_rel.gpu;\n\tatom.add.relaxed.gpu.global.u32 %0, [%1], 1;"
               : "=r"(before)
               : "l"(counter)
               : "memory");
  return before;
}
DEVICE uint32 counter_read(const uint32* counter) {
  uint32 value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
  return value;
}
DEVICE void grid_pause() {}
DEVICE void wave_sync() {
  __syncwarp();
}

#else  // AMD: each wave makes its own writes visible, and invalidates its caches
DEVICE void grid_release() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
}
DEVICE void grid_acquire() {
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
}
DEVICE uint32 counter_add(uint32* counter) {
  return __hip_atomic_fetch_add(counter, 1u, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
}
DEVICE uint32 counter_read(const uint32* counter) {
  return __hip_atomic_load(counter, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT);
}
DEVICE void grid_pause() {
  __builtin_amdgcn_s_sleep(1);
}
DEVICE void wave_sync() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
#endif

// Called by the whole block after it has written a tile of a phase.
DEVICE void signal(uint32* phase) {
  grid_release();
  block_sync();
  if (thread_index() == 0) counter_add(phase);
}

// Called by one thread: waits until all tiles of a phase are written. Then call block_sync and grid_acquire.
DEVICE void await(const uint32* phase, int tiles) {
  while (counter_read(phase) < (uint32)tiles) grid_pause();
}
