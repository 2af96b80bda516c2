// When each block of persistent.hip is where (STAMPS), to be read by people: cycles of the block's own
// multiprocessor, so that only differences within a block mean something.
#pragma once
#include "persistent_tile.h"

// As benchmarks/backends/persistent_forms.py reads them: [blocks][phases of all layers][EVENTS]. Of several
// tiles of a block in one phase the last counts, but for BEGINS.
enum Event { BEGINS, MAY_READ, HAS_WEIGHTS, HAS_MULTIPLIED, HAS_SIGNALLED, EVENTS };

#if STAMPS
#if defined(WAVEFRONT_CPU)
DEVICE uint64 cycles() {
  static uint64 count = 0;
  return ++count;
}
#elif defined(__CUDACC__)
DEVICE uint64 cycles() {
  uint64 count;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(count)::"memory");
  return count;
}
#else
DEVICE uint64 cycles() {
  return __builtin_readcyclecounter();
}
#endif
DEVICE void stamp(const Block& block, Event event) {
  if (thread_index() == 0) block.stamps[block.phase * EVENTS + event] = cycles();
}
#else
DEVICE void stamp(const Block&, Event) {}
#endif
