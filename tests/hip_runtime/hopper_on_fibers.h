// SPDX-License-Identifier: GPL-3.0-or-later
// What gemm_cluster.hip takes of kernels/hopper.h, on CPU fibers: mbarriers that count arrivals and bytes,
// clusters of blocks that reach into each other's shared memory, the TMA with its swizzle, and wgmma with
// operands in shared memory. Copies arrive at once. A grid whose fibers all wait ends the process. Tests
// only.
#pragma once
#include <map>

#define __global__
#define __grid_constant__
#define __cluster_dims__(...)
#define __launch_bounds__(...)
#define __syncwarp wave_sync

static const bool runs_together = fibers::whole_grid = true;

struct alignas(16) float4 {
  float x, y, z, w;
};

namespace on_fibers {

constexpr int CLUSTER = CLUSTER_M * SPLITS;

// Lets other fibers run: those of this block, then other blocks.
static inline void spin() {
  static unsigned long spins = 0;
  if (++spins == 1ul << 28) std::abort();
  fibers::give_way();
  fibers::pause_block();
}
static inline fibers::Block& peer(uint32 rank) {
  return fibers::blocks[fibers::block->x / CLUSTER * CLUSTER + rank];
}

struct Mbarrier {
  int arrivals, pending;
  long bytes;
  unsigned completed;
  void arrive(int count, long expected, long come) {
    pending -= count;
    bytes += expected - come;
    if (pending < 0) std::abort();
    if (pending == 0 && bytes == 0) {
      completed++;
      pending = arrivals;
    }
  }
};
typedef std::pair<int, uint32> Key;  // a block and an offset in its shared memory
static std::map<Key, Mbarrier> barriers;
static std::map<Key, fibers::Barrier> named;
static std::map<int, fibers::Barrier> clusters;

static inline Mbarrier& barrier_of(fibers::Block& block, uint32 at) {
  auto found = barriers.find({block.x, at});
  if (found == barriers.end()) std::abort();  // not initialised
  return found->second;
}
static inline void wait(fibers::Barrier& barrier) {
  const unsigned before = barrier.opened;
  barrier.arrived++;
  barrier.open_if_all_arrived();
  while (barrier.opened == before) spin();
}

}  // namespace on_fibers

DEVICE uint32 shared_address(const void* pointer) {
  return (uint32)((const char*)pointer - fibers::block->shared);
}
DEVICE void barrier_init(uint32 barrier, int arrivals) {
  on_fibers::barriers[{fibers::block->x, barrier}] = {arrivals, arrivals, 0, 0};
}
DEVICE void barrier_init_fence() {}
DEVICE void barrier_arrive_expect(uint32 barrier, int bytes) {
  on_fibers::barrier_of(*fibers::block, barrier).arrive(1, bytes, 0);
}
DEVICE void barrier_wait(uint32 barrier, uint32 phase) {
  while ((on_fibers::barrier_of(*fibers::block, barrier).completed & 1) == phase) on_fibers::spin();
}
DEVICE void barrier_arrive_in_cluster_if(uint32 barrier, uint32 block, bool valid) {
  if (valid) on_fibers::barrier_of(on_fibers::peer(block), barrier).arrive(1, 0, 0);
}
DEVICE void barrier_arrive_if(uint32 barrier, bool valid) {
  if (valid) on_fibers::barrier_of(*fibers::block, barrier).arrive(1, 0, 0);
}
DEVICE float4 load_in_cluster(uint32 from, uint32 block) {
  return *(const float4*)(on_fibers::peer(block).shared + from);
}
DEVICE uint32 rank_in_cluster() {
  return fibers::block->x % on_fibers::CLUSTER;
}
DEVICE void cluster_sync() {
  fibers::Barrier& barrier = on_fibers::clusters[fibers::block->x / on_fibers::CLUSTER];
  barrier.alive = on_fibers::CLUSTER * (int)fibers::block->fibers.size();
  on_fibers::wait(barrier);
}
DEVICE void named_barrier_sync(int number, int threads) {
  fibers::Barrier& barrier = on_fibers::named[{fibers::block->x, (uint32)number}];
  barrier.alive = threads;
  on_fibers::wait(barrier);
}

// sizes, strides in elements of 2 bytes, and the box, innermost dimension first; `dimensions` of 5.
struct TensorMap {
  const uint16* memory;
  long sizes[5], strides[5];
  int box[5], dimensions;
};
DEVICE void tma_prefetch_descriptor(const TensorMap&) {}

namespace on_fibers {

// A box whose first element is at `first`, into the shared memory of all blocks of the mask; 0 beyond the
// ends.
static inline void load_box(uint32 to, const TensorMap& map, uint32 barrier, const long (&first)[5],
                            int mask) {
  const int rows = map.box[1] * map.box[2] * map.box[3] * map.box[4];
  for (uint32 rank = 0; rank < (uint32)CLUSTER; rank++) {
    if (!(mask >> rank & 1)) continue;
    fibers::Block& block = peer(rank);
    for (int row = 0; row < rows; row++)
      for (int x = 0; x < map.box[0]; x++) {
        long at[5] = {x}, rest = row, index = 0;
        for (int d = 1; d < 5; d++) {
          at[d] = rest % map.box[d];
          rest /= map.box[d];
        }
        bool inside = true;
        for (int d = 0; d < 5; d++) {
          at[d] += first[d];
          inside = inside && at[d] < map.sizes[d];
          index += at[d] * map.strides[d];
        }
        const uint32 address = to + row * 128 + 2 * x, swizzled = address ^ (address >> 7 & 7) << 4;
        *(uint16*)(block.shared + swizzled) = inside ? map.memory[index] : 0;
      }
    barrier_of(block, barrier).arrive(0, 0, 2l * rows * map.box[0]);
  }
}

}  // namespace on_fibers

DEVICE void tma_load_2d(uint32 to, const TensorMap& map, uint32 barrier, int x, int y) {
  on_fibers::load_box(to, map, barrier, {x, y}, 1 << rank_in_cluster());
}
DEVICE void tma_load_5d(uint32 to, const TensorMap& map, uint32 barrier, int x, int z) {
  on_fibers::load_box(to, map, barrier, {x, 0, 0, 0, z}, 1 << rank_in_cluster());
}
DEVICE void tma_load_5d(uint32 to, const TensorMap& map, uint32 barrier, int x, int z, int multicast_mask) {
  on_fibers::load_box(to, map, barrier, {x, 0, 0, 0, z}, multicast_mask);
}

DEVICE Bits128 load_if(const void* from, bool valid) {
  return valid ? *(const Bits128*)from : Bits128{{0, 0, 0, 0}};
}
DEVICE void store_shared(uint32 to, const float* four) {
  std::memcpy(fibers::block->shared + to, four, 16);
}

// --- wgmma ---

DEVICE uint64 matrix_descriptor(uint32 address) {
  return address >> 4;
}
DEVICE void wgmma_fence() {}
DEVICE void wgmma_commit() {}
template <int PENDING>
DEVICE void wgmma_wait() {}

namespace on_fibers {
static inline float element(uint64 descriptor, int row, int k) {
  const uint32 address = (uint32)descriptor * 16 + row * 128 + 2 * k;
  return to_float(*(const Element*)(fibers::block->shared + (address ^ (address >> 7 & 7) << 4)));
}
}  // namespace on_fibers

// Each thread computes what it holds; all operands are there before the first of them begins.
template <int N>
DEVICE void wgmma(float (&c)[N / 2], uint64 a, uint64 b, bool accumulate) {
  const int thread = thread_index() % 128, first_row = thread / 32 * 16 + thread % 32 / 4;
  for (int i = 0; i < N / 2; i++) {
    const int row = first_row + i / 2 % 2 * 8, column = i / 4 * 8 + thread % 4 * 2 + i % 2;
    float sum = accumulate ? c[i] : 0.0f;
    for (int k = 0; k < 16; k++) sum += on_fibers::element(a, row, k) * on_fibers::element(b, column, k);
    c[i] = sum;
  }
}
