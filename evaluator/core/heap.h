// SPDX-License-Identifier: GPL-3.0-or-later
// What the C library does with memory that is free.
#pragma once

namespace wavefront::device {

// Has large blocks taken from the system and given back one by one. By itself glibc learns from the first
// large block that is freed to keep all that follow, and requests of some megabytes, received on one thread
// and freed on another, leave holes that add up to as much again. Threads share a few arenas, so that what is
// free in each does not add up either. Nothing where the C library is another one.
void keep_heap_small();

}  // namespace wavefront::device
