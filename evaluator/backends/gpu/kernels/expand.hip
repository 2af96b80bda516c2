// SPDX-License-Identifier: GPL-3.0-or-later
// Expands packed positions into tokens. A position is 904 bytes: 112 plane masks, the value of plane 109 as a
// float, four zero bytes.
//
// tokens: [positions * 64][STRIDE] elements, one row per square: the 112 planes, with plane 109 divided by
// RULE50_DIVISOR, then zeros, or (APPENDED) the APPENDED elements of that square's row of `extra` [positions
// * 64][APPENDED]. pieces (PIECES): [positions][768], the first 12 planes as square * 12 + plane.
//
// Grid: (positions, parts), 256 threads; the parts divide the squares. A block reads the masks into shared
// memory once, with a gap after every 8, so that lanes with neighbouring chunks of planes access different
// banks.
#include "portable.h"

constexpr int THREADS = 256;
constexpr int PLANES = 112;
constexpr int RULE50_PLANE = 109;
constexpr int RECORD_WORDS = 904 / 8;
constexpr int ROW_CHUNKS = STRIDE / CHUNK;

DEVICE int padded(int word) {
  return word + word / 8;
}

KERNEL(expand, THREADS)(const uint64* positions, const Element* extra, Element* tokens, Element* pieces) {
  SHARED uint64 record[RECORD_WORDS + RECORD_WORDS / 8];
  const int position = block_x();
  if (thread_index() < RECORD_WORDS)
    record[padded(thread_index())] = positions[(uint64)position * RECORD_WORDS + thread_index()];
  start_kernel();
  wait_for_previous_kernel();
  block_sync();
  union {
    uint32 bits;
    float value;
  } rule50;
  rule50.bits = (uint32)record[padded(PLANES)];

#if TOKENS
  for (int index = block_y() * THREADS + thread_index(); index < 64 * ROW_CHUNKS; index += PARTS * THREADS) {
    const int square = index / ROW_CHUNKS, column = index % ROW_CHUNKS * CHUNK;
    float x[CHUNK];
#pragma unroll
    for (int i = 0; i < CHUNK; i++) {
      const int plane = column + i;
      x[i] = 0.0f;
      if (plane < PLANES) {
        const float value = plane == RULE50_PLANE ? rule50.value / RULE50_DIVISOR : 1.0f;
        x[i] = (record[padded(plane)] >> square) & 1 ? value : 0.0f;
#if APPENDED
      } else if (plane < PLANES + APPENDED) {
        x[i] = to_float(extra[((uint64)position * 64 + square) * APPENDED + plane - PLANES]);
#endif
      }
    }
    write_chunk(tokens + ((uint64)position * 64 + square) * STRIDE + column, x);
  }
#endif
#if PIECES
  for (int index = block_y() * THREADS + thread_index(); index < 768 / CHUNK; index += PARTS * THREADS) {
    float x[CHUNK];
#pragma unroll
    for (int i = 0; i < CHUNK; i++) {
      const int at = index * CHUNK + i;
      x[i] = (record[padded(at % 12)] >> (at / 12)) & 1 ? 1.0f : 0.0f;
    }
    write_chunk(pieces + (uint64)position * 768 + index * CHUNK, x);
  }
#endif
}
