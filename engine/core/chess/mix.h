// SPDX-License-Identifier: GPL-3.0-or-later
// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): a pseudorandom bijection of 64-bit words.
#pragma once

#include <cstdint>

namespace wavefront::chess {

inline constexpr uint64_t kGoldenGamma = 0x9e3779b97f4a7c15;

constexpr uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace wavefront::chess
