// SPDX-License-Identifier: GPL-3.0-or-later
#include "heap.h"

#if __has_include(<malloc.h>)
#include <malloc.h>
#endif

namespace wavefront::device {

void keep_heap_small() {
#ifdef M_ARENA_MAX
  // By default glibc gives each thread its own arena, up to eight per processor. malloc_trim keeps free
  // memory at the end of all but the first, up to M_TRIM_THRESHOLD. Short-lived threads, such as those that
  // load networks, fill one arena after the other.
  mallopt(M_ARENA_MAX, 4);
#endif
#ifdef M_MMAP_THRESHOLD
  // Smaller blocks, such as normal requests, are not worth the system calls.
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  mallopt(M_TRIM_THRESHOLD, 4 << 20);
#endif
}

}  // namespace wavefront::device
