// SPDX-License-Identifier: GPL-3.0-or-later
// Numbers of 8 bits (e4m3, at most 448), for targets with a matrix unit for them: sm_89 and newer, gfx942,
// gfx950, gfx1200 and gfx1201. evaluator/network/e4m3.py defines the rounding.
//
// They are stored in pairs as 16-bit elements, k of them as k / 2 elements, so that code for elements can
// move them. Fragments have the same bytes as for 16 bits: a lane's bytes along k have the same positions in
// a and b, which suffices for a sum along k.
//
// gfx942 has a variant of e4m3 whose codes have half the value. The host compensates: scales before rounding
// are halved, those of sums are four times as large, and E4M3_LARGEST is the same code.
#pragma once
#include "portable.h"

#if defined(__gfx942__)
#define E4M3_LARGEST 224.0f
#else
#define E4M3_LARGEST 448.0f
#endif

// Rounds four numbers; larger ones saturate.
#if defined(__CUDACC__)
DEVICE uint32 e4m3_pair(float low, float high) {
  uint16 pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
}
DEVICE uint32 e4m3_quad(float a, float b, float c, float d) {
  return e4m3_pair(a, b) | e4m3_pair(c, d) << 16;
}
#else
DEVICE float e4m3_limited(float x) {
  return maximum(minimum(x, E4M3_LARGEST), -E4M3_LARGEST);
}
DEVICE uint32 e4m3_quad(float a, float b, float c, float d) {
  const int low = __builtin_amdgcn_cvt_pk_fp8_f32(e4m3_limited(a), e4m3_limited(b), 0, false);
  return __builtin_amdgcn_cvt_pk_fp8_f32(e4m3_limited(c), e4m3_limited(d), low, true);
}
#endif

// Scales and rounds eight numbers.
DEVICE Bits64 e4m3_chunk(const float* x, float scale) {
  return {{e4m3_quad(x[0] * scale, x[1] * scale, x[2] * scale, x[3] * scale),
           e4m3_quad(x[4] * scale, x[5] * scale, x[6] * scale, x[7] * scale)}};
}
