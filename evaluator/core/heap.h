// SPDX-License-Identifier: GPL-3.0-or-later
// Settings of the C library's heap.
#pragma once

namespace wavefront::device {

// Makes glibc allocate and free large blocks individually. By default, glibc keeps all large blocks after the
// first one is freed. Requests of some megabytes, received on one thread and freed on another, then leave
// holes of the same total size. Threads share a few arenas, so that free memory in each does not add up. No
// effect with another C library.
void keep_heap_small();

}  // namespace wavefront::device
