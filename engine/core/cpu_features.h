// SPDX-License-Identifier: GPL-3.0-or-later
// The instruction sets that the core was compiled for.
#pragma once

namespace wavefront::engine {

// The instruction sets that the compiler was allowed to use (-march). Constant data, so that reading it does
// not run code compiled for them.
struct CompiledFeatures {
  bool sse42 = false;
  bool popcnt = false;
  bool bmi = false;
  bool bmi2 = false;
  bool avx = false;
  bool avx2 = false;
  bool fma = false;
  bool avx512f = false;
  bool avx512bw = false;
  bool avx512dq = false;
  bool avx512vl = false;
  bool avx512vbmi = false;
  bool avx512vbmi2 = false;
  bool avx512bitalg = false;
  bool avx512vpopcntdq = false;
};
extern const CompiledFeatures kCompiledFeatures;

}  // namespace wavefront::engine
