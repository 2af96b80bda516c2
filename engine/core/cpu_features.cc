// SPDX-License-Identifier: GPL-3.0-or-later
// Compiled with the flags of the core, so that the macros show the instruction sets that it may use.
#include "cpu_features.h"

namespace wavefront::engine {

const CpuFeatures kCompiledFeatures = {
#ifdef __SSE4_2__
    .sse42 = true,
#endif
#ifdef __POPCNT__
    .popcnt = true,
#endif
#ifdef __BMI__
    .bmi = true,
#endif
#ifdef __BMI2__
    .bmi2 = true,
#endif
#ifdef __AVX__
    .avx = true,
#endif
#ifdef __AVX2__
    .avx2 = true,
#endif
#ifdef __FMA__
    .fma = true,
#endif
#ifdef __AVX512F__
    .avx512f = true,
#endif
#ifdef __AVX512BW__
    .avx512bw = true,
#endif
#ifdef __AVX512CD__
    .avx512cd = true,
#endif
#ifdef __AVX512DQ__
    .avx512dq = true,
#endif
#ifdef __AVX512VL__
    .avx512vl = true,
#endif
#ifdef __AVX512VBMI__
    .avx512vbmi = true,
#endif
#ifdef __AVX512VBMI2__
    .avx512vbmi2 = true,
#endif
#ifdef __AVX512BITALG__
    .avx512bitalg = true,
#endif
#ifdef __AVX512VPOPCNTDQ__
    .avx512vpopcntdq = true,
#endif
};

}  // namespace wavefront::engine
