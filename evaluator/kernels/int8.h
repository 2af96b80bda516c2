// Whole numbers of 8 bits from -127 to 127, with a scale for each row, for targets whose matrix unit
// multiplies them twice as fast as elements: sm_80 and newer, gfx942, gfx1200 and gfx1201.
// evaluator/network/int8.py defines the rounding. They lie in pairs as those of e4m3.h do; products are
// summed up exactly, in int.
#pragma once
#include "portable.h"

// The scale of a row with this largest magnitude, and what its numbers are multiplied with before they are
// rounded. Rows of zeros have a scale, too.
DEVICE float int8_scale(float largest) {
  return maximum(largest, 1e-30f) * (1.0f / 127.0f);
}
DEVICE float int8_factor(float largest) {
  return 127.0f / maximum(largest, 1e-30f);
}

// The nearest whole number in the lowest byte, ties to even: added to 1.5 * 2^23, a float has no digits
// behind the point.
DEVICE uint32 int8_code(float x) {
  union {
    float value;
    uint32 bits;
  } shifted;
  shifted.value = x + 12582912.0f;
  return shifted.bits & 0xff;
}
// Eight numbers of a row, rounded.
DEVICE Bits64 int8_chunk(const float* x, float factor) {
  Bits64 chunk;
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const float* four = x + 4 * i;
    chunk.word[i] = int8_code(four[0] * factor) | int8_code(four[1] * factor) << 8 |
                    int8_code(four[2] * factor) << 16 | int8_code(four[3] * factor) << 24;
  }
  return chunk;
}
