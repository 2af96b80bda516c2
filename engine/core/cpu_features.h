// Whether this CPU can run the code the core was compiled to.
#pragma once

namespace wavefront {

// The instruction sets that the compiler was allowed to use (-march). Constant data: reading it runs no code
// that was compiled for them.
struct CompiledFeatures {
  bool popcnt, bmi, bmi2, avx, avx2, fma, avx512f, avx512bw, avx512vl;
};
extern const CompiledFeatures kCompiledFeatures;

}  // namespace wavefront
