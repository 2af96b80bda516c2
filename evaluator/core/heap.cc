#include "heap.h"

#if __has_include(<malloc.h>)
#include <malloc.h>
#endif

namespace wavefront {

void keep_heap_small() {
#ifdef M_MMAP_THRESHOLD
  // Smaller ones, requests of usual size among them, are not worth the system calls.
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  mallopt(M_TRIM_THRESHOLD, 4 << 20);
#endif
}

}  // namespace wavefront
