// SPDX-License-Identifier: GPL-3.0-or-later
// The element-wise functions of lc0 networks, in float. ACTIVATION_* are the values of the kernels'
// ACTIVATION. NaN stays NaN, so that an overflow shows in the result; fmax(NaN, 0) would hide it.
#pragma once
#include "portable.h"

#define ACTIVATION_NONE 0
#define ACTIVATION_RELU 1
#define ACTIVATION_RELU_SQUARED 2
#define ACTIVATION_MISH 3
#define ACTIVATION_SWISH 4
#define ACTIVATION_SELU 5
#define ACTIVATION_TANH 6
#define ACTIVATION_SIGMOID 7

DEVICE float sigmoid(float x) {
  return divide_fast(1.0f, 1.0f + exp_fast(-x));  // 1 / infinity is 0
}

template <int KIND>
DEVICE float activate(float x) {
  if constexpr (KIND == ACTIVATION_RELU) return x < 0.0f ? 0.0f : x;
  if constexpr (KIND == ACTIVATION_RELU_SQUARED) {
    float positive = x < 0.0f ? 0.0f : x;
    return positive * positive;
  }
  if constexpr (KIND == ACTIVATION_MISH) {
    // x tanh(log(1 + e^x)) = x (e^2x + 2 e^x) / (e^2x + 2 e^x + 2); above 20 it is x to the last bit.
    float e = exp_fast(minimum(x, 20.0f));
    float t = e * e + 2.0f * e;
    return x * divide_fast(t, t + 2.0f);
  }
  if constexpr (KIND == ACTIVATION_SWISH) return x * sigmoid(x);
  if constexpr (KIND == ACTIVATION_SELU)
    return 1.05070098f * (x > 0.0f ? x : 1.67326324f * (exp_fast(x) - 1.0f));
  if constexpr (KIND == ACTIVATION_TANH) return 2.0f * sigmoid(2.0f * x) - 1.0f;
  if constexpr (KIND == ACTIVATION_SIGMOID) return sigmoid(x);
  return x;
}

// Activates 8 values. Mish has two expensive steps, an exponential and a division; pairs share the division.
template <int KIND>
DEVICE void activate_all(float (&x)[8]) {
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    if constexpr (KIND == ACTIVATION_MISH) {
      // Above 10 mish is x to the last bit, too; the product of two denominators stays below 1e18.
      const float e = exp_fast(minimum(x[i], 10.0f)), f = exp_fast(minimum(x[i + 1], 10.0f));
      const float s = e * (e + 2.0f), t = f * (f + 2.0f);
      const float r = divide_fast(1.0f, (s + 2.0f) * (t + 2.0f));
      x[i] *= s * (t + 2.0f) * r;
      x[i + 1] *= t * (s + 2.0f) * r;
    } else {
      x[i] = activate<KIND>(x[i]);
      x[i + 1] = activate<KIND>(x[i + 1]);
    }
  }
}
