// SPDX-License-Identifier: GPL-3.0-or-later
// The Python module engine._core.
//
// CMake compiles this file for any CPU. It first checks that the CPU has the instruction sets of the other
// files. So a core built elsewhere raises ImportError instead of SIGILL.
#include <nanobind/nanobind.h>

#include <stdexcept>
#include <string>

#include "bind.h"
#include "chess/attacks.h"
#include "cpu_features.h"

namespace wavefront::engine {

using namespace chess;
namespace {

std::string missing_cpu_features() {
  std::string missing;
#if (defined(__GNUC__) || defined(__clang__)) && (defined(__x86_64__) || defined(__i386__))
  __builtin_cpu_init();
  const auto require = [&](bool compiled, bool present, const char* name) {
    if (!compiled || present) return;
    missing += missing.empty() ? "" : ", ";
    missing += name;
  };
  const CompiledFeatures& compiled = kCompiledFeatures;
  require(compiled.sse42, __builtin_cpu_supports("sse4.2"), "SSE4.2");
  require(compiled.popcnt, __builtin_cpu_supports("popcnt"), "POPCNT");
  require(compiled.bmi, __builtin_cpu_supports("bmi"), "BMI");
  require(compiled.bmi2, __builtin_cpu_supports("bmi2"), "BMI2");
  require(compiled.avx, __builtin_cpu_supports("avx"), "AVX");
  require(compiled.avx2, __builtin_cpu_supports("avx2"), "AVX2");
  require(compiled.fma, __builtin_cpu_supports("fma"), "FMA");
  require(compiled.avx512f, __builtin_cpu_supports("avx512f"), "AVX-512 F");
  require(compiled.avx512bw, __builtin_cpu_supports("avx512bw"), "AVX-512 BW");
  require(compiled.avx512dq, __builtin_cpu_supports("avx512dq"), "AVX-512 DQ");
  require(compiled.avx512vl, __builtin_cpu_supports("avx512vl"), "AVX-512 VL");
  require(compiled.avx512vbmi, __builtin_cpu_supports("avx512vbmi"), "AVX-512 VBMI");
  require(compiled.avx512vbmi2, __builtin_cpu_supports("avx512vbmi2"), "AVX-512 VBMI2");
  require(compiled.avx512bitalg, __builtin_cpu_supports("avx512bitalg"), "AVX-512 BITALG");
  require(compiled.avx512vpopcntdq, __builtin_cpu_supports("avx512vpopcntdq"), "AVX-512 VPOPCNTDQ");
#endif
  return missing;
}

}  // namespace
}  // namespace wavefront::engine

NB_MODULE(_core, module) {
  const std::string missing = wavefront::engine::missing_cpu_features();
  if (!missing.empty()) {
    // nanobind converts it to ImportError.
    throw std::runtime_error(
        "engine._core was built for a CPU with " + missing +
        ", which this one lacks: build it here with 'pip install .', or for any CPU with "
        "'pip install . -Ccmake.define.WAVEFRONT_ARCH=x86-64-v2'");
  }
  // Objects held by daemon threads at the interpreter's exit are not leaks.
  nanobind::set_leak_warnings(false);
  module.doc() = "The native search core: chess rules, lc0 input encoding and the search tree.";
  module.attr("__version__") = WAVEFRONT_VERSION;
  module.attr("CORE_DIGEST") = WAVEFRONT_CORE_DIGEST;
  wavefront::chess::initialise_attacks();
  wavefront::engine::bind_chess(module);
  wavefront::engine::bind_syzygy(module);
  wavefront::engine::bind_training(module);
  wavefront::engine::bind_tree(module);
  wavefront::engine::bind_exchange(module);
}
