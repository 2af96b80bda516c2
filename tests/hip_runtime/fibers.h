// SPDX-License-Identifier: GPL-3.0-or-later
// GPU kernels as plain C++ on the CPU: one fiber per GPU thread, one block at a time, or all blocks of a grid
// that wait for each other. Tests only.
//
// Barriers and shuffles are exact: a fiber that reaches one gives way until all live fibers of its block
// (wave) have reached it, so a kernel that would hang or mix up its lanes does so here. Shared memory starts
// out filled with NaN patterns, so that reading what nobody wrote shows. The wave is WAVEFRONT_CPU_WAVE
// lanes. Fibers switch by saving the callee-saved registers of the System V x86-64 calling convention, which
// is why this needs an x86-64 machine. On Windows they are called as such, with room for four registers
// above.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#define WAVE WAVEFRONT_CPU_WAVE
#define DEVICE static inline
#define KERNEL(name, threads) extern "C" void name
#define ALONE(threads) threads
#define SHARED static
#define DYNAMIC_SHARED(name) char* name = fibers::block->shared

namespace fibers {

extern "C" __attribute__((sysv_abi)) void fibers_switch(void** save_stack_pointer, void* load_stack_pointer);
__asm__(
    ".text\n"
    ".globl fibers_switch\n"
    "fibers_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n");

constexpr std::size_t STACK_BYTES = 64 << 10;

// Fibers that have reached a barrier, and how often it has opened.
struct Barrier {
  int arrived = 0, alive = 0;
  unsigned opened = 0;
  void open_if_all_arrived() {
    if (alive && arrived == alive) {
      arrived = 0;
      opened++;
    }
  }
};

struct Fiber {
  void* stack_pointer;
  bool done;
};

struct Wave {
  Barrier barrier;
  float exchanged[2][WAVE];  // one for each parity of barrier.opened: readers may lag behind by one exchange
};

struct Block {
  std::vector<Fiber> fibers;
  std::vector<Wave> waves;
  Barrier barrier;
  int current = 0;
  int x = 0, y = 0, z = 0;
  char* shared = nullptr;
  void (*body)(void*) = nullptr;
  void* context = nullptr;
};
static std::vector<Block> blocks;  // those that are running: one, or the whole grid
static Block* block;               // the one whose fiber runs now
static bool whole_grid = false;    // set by a kernel whose blocks wait for each other (grid.h)

static inline void give_way() {
  const int from = block->current, count = (int)block->fibers.size();
  int to = from;
  do to = to + 1 == count ? 0 : to + 1;
  while (block->fibers[to].done && to != from);
  if (to == from) return;
  block->current = to;
  fibers_switch(&block->fibers[from].stack_pointer, block->fibers[to].stack_pointer);
}

static inline void wait(Barrier& barrier) {
  const unsigned before = barrier.opened;
  barrier.arrived++;
  barrier.open_if_all_arrived();
  while (barrier.opened == before) give_way();
}

// The next block that has not ended, after this one; null if there is none.
static inline Block* next_block() {
  const int count = (int)blocks.size(), from = (int)(block - blocks.data());
  for (int i = 1; i <= count; i++) {
    Block* next = &blocks[(from + i) % count];
    if (next->barrier.alive) return next;
  }
  return nullptr;
}

// Lets another block of the grid run. A grid in which every block waits for good ends the process.
static inline void pause_block() {
  static unsigned long pauses = 0;
  if (++pauses == 1ul << 32) std::abort();
  Block* from = block;
  Block* to = next_block();
  if (to == from) return;
  block = to;
  fibers_switch(&from->fibers[from->current].stack_pointer, to->fibers[to->current].stack_pointer);
}

static void* host_stack_pointer;

static void run_fiber() {
  block->body(block->context);
  Fiber& me = block->fibers[block->current];
  me.done = true;
  Wave& wave = block->waves[block->current / WAVE];
  wave.barrier.alive--;
  wave.barrier.open_if_all_arrived();
  block->barrier.alive--;
  block->barrier.open_if_all_arrived();
  void* never;
  if (block->barrier.alive == 0) {
    Block* next = next_block();
    if (next == nullptr) fibers_switch(&never, host_stack_pointer);
    block = next;
    fibers_switch(&never, next->fibers[next->current].stack_pointer);
  }
  const int count = (int)block->fibers.size();
  int to = block->current;
  do to = to + 1 == count ? 0 : to + 1;
  while (block->fibers[to].done);
  block->current = to;
  fibers_switch(&never, block->fibers[to].stack_pointer);
  std::abort();
}

static void launch(const unsigned* grid, int threads, std::size_t shared_bytes, void (*body)(void*),
                   void* context) {
  const int count = (int)(grid[0] * grid[1] * grid[2]), together = whole_grid ? count : 1;
  const std::size_t shared_size = (shared_bytes + 2047) / 1024 * 1024;
  char* stacks = (char*)std::malloc(STACK_BYTES * threads * together);
  char* shared_pages = (char*)std::malloc(shared_size * together + 1024);
  char* shared = shared_pages + (-(std::uintptr_t)shared_pages & 1023);
  blocks.assign(together, Block{});
  for (int first = 0; first < count; first += together) {
    for (int index = 0; index < together; index++) {
      Block& each = blocks[index];
      const int number = first + index;
      each.x = number % (int)grid[0];
      each.y = number / (int)grid[0] % (int)grid[1];
      each.z = number / (int)(grid[0] * grid[1]);
      each.body = body;
      each.context = context;
      each.shared = shared + shared_size * index;
      std::memset(each.shared, 0xff, shared_bytes);
      each.fibers.assign(threads, Fiber{});
      each.waves.assign((threads + WAVE - 1) / WAVE, Wave{});
      each.barrier = Barrier{};
      each.barrier.alive = threads;
      each.current = 0;
      for (int i = 0; i < threads; i++) {
        each.waves[i / WAVE].barrier.alive++;
        char* stack = stacks + STACK_BYTES * ((std::size_t)index * threads + i + 1);
        void** top = (void**)((std::uintptr_t)stack & ~(std::uintptr_t)15);
        top -= 4;
        *--top = nullptr;  // keeps the stack aligned as after a call
        *--top = (void*)&run_fiber;
        for (int r = 0; r < 6; r++) *--top = nullptr;
        each.fibers[i] = Fiber{top, false};
      }
    }
    block = &blocks[0];
    fibers_switch(&host_stack_pointer, block->fibers[0].stack_pointer);
  }
  std::free(shared_pages);
  std::free(stacks);
}

// Runs a kernel whose arguments lie one after the other, each aligned to its size, as the GPU runtimes pack
// them.
template <class... Arguments>
static int launch_packed(void (*kernel)(Arguments...), const unsigned* grid, int threads,
                         std::size_t shared_bytes, const void* packed) {
  struct Call {
    void (*kernel)(Arguments...);
    std::tuple<std::remove_cv_t<Arguments>...> values;
  } call{kernel, {}};
  std::size_t at = 0;
  auto unpack = [&](auto& value) {
    at = (at + sizeof value - 1) / sizeof value * sizeof value;
    std::memcpy(&value, (const char*)packed + at, sizeof value);
    at += sizeof value;
  };
  std::apply([&](auto&... values) { (unpack(values), ...); }, call.values);
  launch(
      grid, threads, shared_bytes,
      [](void* context) { std::apply(((Call*)context)->kernel, ((Call*)context)->values); }, &call);
  return 0;
}

}  // namespace fibers

DEVICE int thread_index() {
  return fibers::block->current;
}
DEVICE int block_x() {
  return fibers::block->x;
}
DEVICE int block_y() {
  return fibers::block->y;
}
DEVICE int block_z() {
  return fibers::block->z;
}
DEVICE void block_sync() {
  fibers::wait(fibers::block->barrier);
}
DEVICE float wave_xor(float value, int mask) {
  fibers::Wave& wave = fibers::block->waves[thread_index() / WAVE];
  float* slots = wave.exchanged[wave.barrier.opened & 1];
  slots[thread_index() % WAVE] = value;
  fibers::wait(wave.barrier);
  return slots[(thread_index() % WAVE) ^ mask];
}
DEVICE void wave_sync() {
  fibers::wait(fibers::block->waves[thread_index() / WAVE].barrier);
}
DEVICE void grid_pause() {
  fibers::pause_block();
}
DEVICE float exp2_fast(float x) {
  return std::exp2(x);
}
DEVICE float divide_fast(float a, float b) {
  return a / b;
}
DEVICE float reciprocal_sqrt(float x) {
  return 1.0f / std::sqrt(x);
}
DEVICE float maximum(float a, float b) {
  return std::fmax(a, b);
}
DEVICE float minimum(float a, float b) {
  return std::fmin(a, b);
}
