// SPDX-License-Identifier: GPL-3.0-or-later
// See races.h.
#include "races.h"

#include <string.h>

enum { EXEC = 126, SEVERAL = 255 };

uint64_t wave_bytes(void) { return sizeof(Wave); }

// A block begins: nothing is outstanding, and its epoch is later than all of the block before.
void begin_wave(Wave* wave, uint32_t id, uint32_t epoch) {
  memset(wave, 0, sizeof *wave);
  wave->id = id;
  wave->epoch = epoch;
}

static int stamp(Block* block, const Wave* wave, const Access* access) {
  const Effects* effects = access->effects;
  uint32_t now = wave->epoch << 8, mine = now | wave->id;
  for (uint32_t lane = 0; lane < block->lanes; lane++) {
    if (!(access->active >> lane & 1)) continue;
    for (uint32_t i = 0; i < effects->offset_count; i++) {
      uint64_t first = (uint64_t)access->addresses[lane] + effects->offsets[i];
      uint64_t last = (first + effects->size - 1) >> block->shift;
      for (uint64_t at = first >> block->shift; at <= last && at < block->granules; at++) {
        Granule* granule = &block->shadow[at];
        uint32_t other = granule->writer;
        int read = granule->reader >= now && granule->reader != mine;
        if (other < now || other == mine) other = effects->access == WRITES && read ? granule->reader : 0;
        if (other) {
          block->found = (uint32_t)(at << block->shift);
          block->place = access->place;
          block->origin = (other & 255) == SEVERAL ? SEVERAL : (other & 255) - 1;
          return RACE;
        }
        if (effects->access == WRITES) granule->writer = mine;
        else granule->reader = read ? now | SEVERAL : mine;
      }
    }
  }
  return FINE;
}

// Begin the epoch behind a barrier with what was outstanding when the wave arrived there.
int pass_barrier(Block* block, Wave* wave) {
  if (!wave->passes) return FINE;
  wave->passes = 0;
  wave->epoch++;
  for (uint32_t i = 0; i < RING; i++) {
    const Access* access = &wave->ring[i];
    if (access->effects && access->number > wave->at_arrival && stamp(block, wave, access)) return RACE;
  }
  return FINE;
}

// Whether a register of the set is still to be written by a load. kind: of the operation that writes the
// set itself; one that returns in order may follow another of its kind.
static int early(Block* block, Wave* wave, const uint64_t* set, uint8_t kind) {
  for (uint32_t word = 0; word < WORDS; word++) {
    for (uint64_t bits = set[word] & wave->pending[word]; bits; bits &= bits - 1) {
      uint32_t at = 64 * word + (uint32_t)__builtin_ctzll(bits);
      if (wave->number[at] <= wave->completed[wave->kind[at]]) {
        wave->pending[word] &= ~(bits & -bits);
      } else if (wave->kind[at] != kind || kind == SCALAR) {
        block->found = at;
        block->origin = wave->origin[at];
        return EARLY_USE;
      }
    }
  }
  return FINE;
}

static int access_shared(Block* block, Wave* wave, const Effects* effects, uint32_t place,
                         const uint32_t* scalars, const uint32_t* vectors) {
  Access* access = &wave->ring[wave->issued[SHARED] % RING];
  access->number = wave->issued[SHARED];
  access->place = place;
  access->active = scalars[EXEC];
  if (block->lanes == 64) access->active |= (uint64_t)scalars[EXEC + 1] << 32;
  access->effects = effects;
  memcpy(access->addresses, vectors + effects->address * block->lanes, 4 * block->lanes);
  return stamp(block, wave, access);
}

// Before an instruction executes. place: of it in the program.
int check(Block* block, Wave* wave, const Effects* effects, uint32_t place, const uint32_t* scalars,
          const uint32_t* vectors) {
  for (int kind = 0; kind < KINDS; kind++) {
    int left = effects->waits[kind];
    // Scalar loads return in any order.
    if (left < 0 || (kind == SCALAR && left) || (uint32_t)left >= wave->issued[kind]) continue;
    uint32_t completed = wave->issued[kind] - (uint32_t)left;
    if (completed > wave->completed[kind]) wave->completed[kind] = completed;
  }
  uint64_t some = 0;
  for (uint32_t word = 0; word < WORDS; word++)
    some |= (effects->used[word] | effects->loaded[word]) & wave->pending[word];
  if (some && (early(block, wave, effects->used, NO_KIND) || early(block, wave, effects->loaded, effects->kind)))
    return block->place = place, EARLY_USE;
  if (effects->barrier & ARRIVES) wave->at_arrival = wave->completed[SHARED];
  if (effects->barrier & PASSES) wave->passes = 1;
  uint8_t kind = effects->kind;
  if (kind == NO_KIND) return FINE;
  uint32_t number = ++wave->issued[kind], limit = block->limits[kind];
  // A full counter holds the wave back.
  if (number > limit && number - limit > wave->completed[kind] && kind != SCALAR)
    wave->completed[kind] = number - limit;
  for (uint32_t word = 0; word < WORDS; word++) {
    wave->pending[word] |= effects->loaded[word];
    for (uint64_t bits = effects->loaded[word]; bits; bits &= bits - 1) {
      uint32_t at = 64 * word + (uint32_t)__builtin_ctzll(bits);
      wave->number[at] = number;
      wave->origin[at] = place;
      wave->kind[at] = kind;
    }
  }
  return effects->access ? access_shared(block, wave, effects, place, scalars, vectors) : FINE;
}
