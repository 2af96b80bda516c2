// SPDX-License-Identifier: GPL-3.0-or-later
// The inner loop of the emulator: one translated instruction after the other, for one wave.
#include <stdint.h>

#include "races.c"

// arguments: which of the wave's buffers the function takes; it ignores those it did not ask for.
typedef struct {
  void (*function)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
  const Effects* effects;
  uint8_t arguments[6];
  uint8_t is_barrier;
  uint8_t unused;
} Instruction;

enum { ENDED, AT_BARRIER, NOT_TRANSLATED, TOO_LONG };

// registers: the scalar file, with the program counter in words 256 and 257. code: where the program lies;
// instructions has an entry for every 4 bytes of it. block, wave: of the check for races, or null.
int run_wave(const uint32_t* registers, const uint64_t* buffers, const Instruction* instructions,
             uint64_t code, uint64_t words, uint64_t limit, uint64_t* executed, Block* block, Wave* wave) {
  if (block && pass_barrier(block, wave)) return RACE;
  for (uint64_t i = 0; i < limit; i++) {
    uint64_t counter = registers[256] | (uint64_t)registers[257] << 32;
    if (counter == UINT64_MAX) return ENDED;
    uint64_t index = (counter - code) / 4;
    if (index >= words || !instructions[index].function) return NOT_TRANSLATED;
    const Instruction* at = &instructions[index];
    if (block) {
      int fault = check(block, wave, at->effects, (uint32_t)index, registers, (const uint32_t*)buffers[1]);
      if (fault) return fault;
    }
    at->function(buffers[at->arguments[0]], buffers[at->arguments[1]], buffers[at->arguments[2]],
                 buffers[at->arguments[3]], buffers[at->arguments[4]], buffers[at->arguments[5]]);
    ++*executed;
    if (at->is_barrier) return AT_BARRIER;
  }
  return TOO_LONG;
}
