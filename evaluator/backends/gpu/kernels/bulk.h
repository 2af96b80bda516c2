// SPDX-License-Identifier: GPL-3.0-or-later
// Bulk copies from device to shared memory by the TMA (cp.async.bulk, sm_90 and newer). A row takes one
// instruction. Unlike the copies of portable.h, it does not wait in the load queue of the multiprocessor.
//
// An mbarrier in shared memory counts the arriving bytes. It is used in rounds. One thread announces the
// number of bytes with bulk_expect, any threads start copies with bulk_copy, and the threads that need the
// bytes wait with bulk_wait. The caller tracks the parity of the round, initially 0.
#pragma once
#include "portable.h"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define BULK_COPY 1
DEVICE void bulk_init(uint64* barrier, uint32 arrivals = 1) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
               : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// Called by all threads, followed by a block_sync, before the TMA overwrites data that the block has written.
DEVICE void bulk_fence() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
DEVICE void bulk_expect(uint64* barrier, uint32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
}
// bytes and both addresses must be multiples of 16.
DEVICE void bulk_copy(uint64* barrier, void* to, const void* from, uint32 bytes) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}
// The same copy into all blocks of the cluster, to the same address in each; their barriers count the bytes.
DEVICE void bulk_copy_to_cluster(uint64* barrier, void* to, const void* from, uint32 bytes, uint32 blocks) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier)), "h"((uint16)((1u << blocks) - 1))
      : "memory");
}
// Arrives at the same barrier of each block of the cluster.
DEVICE void bulk_arrive_in_cluster(uint64* barrier, uint32 blocks) {
  for (uint32 block = 0; block < blocks; block++)
    asm volatile(
        "{\n\t"
        ".reg .b32 there;\n\t"
        "mapa.shared::cluster.u32 there, %0, %1;\n\t"
        "mbarrier.arrive.shared::cluster.b64 _, [there];\n\t"
        "}" ::"r"(shared_address(barrier)),
        "r"(block)
        : "memory");
}
// Called by all threads of all blocks of the cluster.
DEVICE void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
}
DEVICE void bulk_wait(uint64* barrier, uint32 parity) {
  uint32 done = 0;
  while (!done)
    asm volatile(
        "{\n\t"
        ".reg .pred p;\n\t"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
        "selp.u32 %0, 1, 0, p;\n\t"
        "}"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
}
#else
#define BULK_COPY 0
DEVICE void bulk_init(uint64*, uint32 = 1) {}
DEVICE void bulk_fence() {}
DEVICE void bulk_expect(uint64*, uint32) {}
DEVICE void bulk_copy(uint64*, void*, const void*, uint32) {}
DEVICE void bulk_copy_to_cluster(uint64*, void*, const void*, uint32, uint32) {}
DEVICE void bulk_arrive_in_cluster(uint64*, uint32) {}
DEVICE void cluster_sync() {}
DEVICE void bulk_wait(uint64*, uint32) {}
#endif
