// SPDX-License-Identifier: GPL-3.0-or-later
// Conversion of a network's logits to packed priors of the legal moves.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "chess/move.h"
#include "tree/node.h"

namespace wavefront::tree {

// Returns e^x for x <= 0 with a relative error below 2e-7, in a form that compilers vectorise.
// 2^t = 2^round(t) * p(t - round(t)) with the Taylor polynomial of 2^f on [-1/2, 1/2].
inline float exp_nonpositive(float x) {
  constexpr float kLog2E = 1.44269504f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding and subtracting it rounds to an integer
  float t = x * kLog2E;
  t = t < -126.0f ? -126.0f : t;
  float whole = (t + kRound) - kRound;
  float f = (t - whole) * 0.693147181f;
  float p =
      1.0f + f * (1.0f + f * (0.5f + f * (1.66666667e-1f +
                                          f * (4.16666667e-2f + f * (8.33333333e-3f + f * 1.38888889e-3f)))));
  return std::bit_cast<float>(std::bit_cast<int32_t>(p) + (static_cast<int32_t>(whole) << 23));
}

// Computes packed priors: softmax of logits / temperature over the legal moves. priors: of the size of
// `logits`.
inline void softmax_priors(std::span<const float> logits, float temperature, std::span<uint16_t> priors) {
  float exps[256];
  size_t count = logits.size();
  float highest = logits[0];
  for (size_t i = 1; i < count; ++i) highest = logits[i] > highest ? logits[i] : highest;
  float scale = 1.0f / temperature;
  float sum = 0.0f;
  for (size_t i = 0; i < count; ++i) exps[i] = exp_nonpositive((logits[i] - highest) * scale);
  for (size_t i = 0; i < count; ++i) sum += exps[i];
  float norm = 1.0f / sum;
  for (size_t i = 0; i < count; ++i) priors[i] = pack_prior(exps[i] * norm);
}

// Fills `edges` with the moves in descending order of priors. Equal priors have a deterministic order.
void sort_edges(std::span<const Move> moves, std::span<const uint16_t> priors, Edge* edges);

}  // namespace wavefront::tree
