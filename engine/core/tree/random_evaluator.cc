// SPDX-License-Identifier: GPL-3.0-or-later
#include "tree/random_evaluator.h"

#include <array>
#include <bit>

#include "chess/mix.h"

namespace wavefront::tree {
namespace {

constexpr auto kPlaneFactors = [] {
  std::array<uint64_t, 112> factors{};
  for (uint64_t plane = 0; plane < factors.size(); ++plane)
    factors[plane] = mix((plane + 1) * kGoldenGamma) | 1;
  return factors;
}();

uint64_t hash(const EncodedPosition& position) {
  uint64_t sum = static_cast<uint64_t>(std::bit_cast<uint32_t>(position.rule50)) * 0xd6e8feb86659fd93;
  for (size_t plane = 0; plane < kPlaneFactors.size(); ++plane) {
    sum += position.planes[plane] * kPlaneFactors[plane];
  }
  return mix(sum);
}

float uniform01(uint64_t x) {
  return static_cast<float>(x >> 40) * 0x1p-24f;
}

}  // namespace

void evaluate_randomly(const Batch& batch, Evaluations& evaluations) {
  const auto positions = batch.positions();
  const auto offsets = batch.move_offsets();
  const auto indices = batch.policy_indices();
  evaluations.logits.resize(indices.size());
  evaluations.wdl.resize(3 * positions.size());
  evaluations.moves_left.resize(positions.size());
  for (size_t i = 0; i < positions.size(); ++i) {
    const uint64_t seed = hash(positions[i]);
    const float decided = uniform01(mix(seed + 1));
    const float draw = 0.5f * uniform01(mix(seed + 2));
    const float win = (1.0f - draw) * decided;
    evaluations.wdl[3 * i] = win;
    evaluations.wdl[3 * i + 1] = draw;
    evaluations.wdl[3 * i + 2] = (1.0f - draw) - win;
    evaluations.moves_left[i] = 20.0f + 100.0f * uniform01(mix(seed + 3));
    for (uint32_t j = offsets[i]; j < offsets[i + 1]; ++j) {
      evaluations.logits[j] = 4.0f * uniform01(mix(seed + kGoldenGamma * (16 + uint64_t{indices[j]}))) - 2.0f;
    }
  }
}

}  // namespace wavefront::tree
