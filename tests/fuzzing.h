// SPDX-License-Identifier: GPL-3.0-or-later
// What programs share that do things at random and are built with sanitizers (fuzzing.py).
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace wavefront {

using Random = std::mt19937_64;

// Ends the program, with what is wrong on standard error, unless it holds.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::exit(1);
}

// A number from 0 to end - 1.
inline std::size_t below(Random& random, std::size_t end) {
  return random() % end;
}

}  // namespace wavefront
