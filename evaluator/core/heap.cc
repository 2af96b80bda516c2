// SPDX-License-Identifier: GPL-3.0-or-later
#include "heap.h"

#if __has_include(<malloc.h>)
#include <malloc.h>
#endif

namespace wavefront::device {

namespace {

// By itself glibc gives each thread an arena of its own, up to eight for each processor, and malloc_trim
// leaves what is free at the end of all but the first, up to M_TRIM_THRESHOLD. Threads that come and go, as
// those that load networks do, fill one after the other.
constexpr int kArenas = 4;

}  // namespace

void keep_heap_small() {
#ifdef M_ARENA_MAX
  mallopt(M_ARENA_MAX, kArenas);
#endif
#ifdef M_MMAP_THRESHOLD
  // Smaller ones, requests of usual size among them, are not worth the system calls.
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  mallopt(M_TRIM_THRESHOLD, 4 << 20);
#endif
}

}  // namespace wavefront::device
