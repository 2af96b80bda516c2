// SPDX-License-Identifier: GPL-3.0-or-later
// Races in shared memory and missing waits of one block, as its waves execute.
//
// Waits: each wave counts what it has issued and what a wait has completed, for each kind of operation. A
// register that a load writes remembers the load's number. It must not be used while that number is not
// completed.
//
// Races: each granule of shared memory remembers the last wave that wrote it and the last that read it, with
// the number of barriers (epoch) that this wave had passed. Two waves conflict in one epoch if one of them
// writes. An operation that is not completed at a barrier happens in the next epoch, too.
#pragma once
#include <stdint.h>

enum { VECTOR, SHARED, SCALAR, KINDS, NO_KIND = 255 };
enum { READS = 1, WRITES = 2 };
enum { ARRIVES = 1, PASSES = 2 };
enum { RING = 64, WORDS = 10, REGISTERS = 64 * WORDS };

// What one instruction does. used, loaded: a bit for each register, v0 to v255, a0 to a255, s0 to s127.
// loaded: those that a memory operation writes later. waits: by kind the operations that may stay
// outstanding, or -1. access: to shared memory, `size` bytes of a lane at each of the offsets.
typedef struct {
  uint64_t used[WORDS], loaded[WORDS];
  int16_t waits[KINDS];
  uint8_t kind, barrier, access, address, size, offset_count;
  uint32_t offsets[2];
} Effects;

typedef struct {
  uint32_t number, place;
  uint64_t active;
  const Effects* effects;
  uint32_t addresses[64];
} Access;

typedef struct {
  uint64_t pending[WORDS];
  uint32_t number[REGISTERS];  // of the load that writes a register
  uint32_t origin[REGISTERS];  // its place in the program
  uint8_t kind[REGISTERS];
  uint32_t issued[KINDS], completed[KINDS];
  uint32_t at_arrival;  // shared operations completed on arrival at the barrier
  uint32_t passes;      // whether it has run up to a barrier
  uint32_t epoch, id;
  Access ring[RING];
} Wave;

typedef struct {
  uint32_t writer, reader;
} Granule;

// limits: by kind how many operations a counter can count. A fault: found is the register, or the byte of
// shared memory; place is where the program uses it; origin is the place of the load, or the other wave (255:
// several).
typedef struct {
  Granule* shadow;
  uint64_t granules;
  uint32_t shift, lanes;
  uint32_t limits[KINDS];
  uint32_t found, origin, place;
} Block;

enum { FINE, EARLY_USE = 16, RACE };
