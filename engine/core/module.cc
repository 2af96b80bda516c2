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
  const CpuFeatures& compiled = kCompiledFeatures;
  const CpuFeatures present = detect_cpu_features();
  const auto require = [&](bool CpuFeatures::* feature, const char* name) {
    if (!(compiled.*feature) || present.*feature) return;
    missing += missing.empty() ? "" : ", ";
    missing += name;
  };
  require(&CpuFeatures::sse42, "SSE4.2");
  require(&CpuFeatures::popcnt, "POPCNT");
  require(&CpuFeatures::bmi, "BMI");
  require(&CpuFeatures::bmi2, "BMI2");
  require(&CpuFeatures::avx, "AVX");
  require(&CpuFeatures::avx2, "AVX2");
  require(&CpuFeatures::fma, "FMA");
  require(&CpuFeatures::avx512f, "AVX-512 F");
  require(&CpuFeatures::avx512bw, "AVX-512 BW");
  require(&CpuFeatures::avx512cd, "AVX-512 CD");
  require(&CpuFeatures::avx512dq, "AVX-512 DQ");
  require(&CpuFeatures::avx512vl, "AVX-512 VL");
  require(&CpuFeatures::avx512vbmi, "AVX-512 VBMI");
  require(&CpuFeatures::avx512vbmi2, "AVX-512 VBMI2");
  require(&CpuFeatures::avx512bitalg, "AVX-512 BITALG");
  require(&CpuFeatures::avx512vpopcntdq, "AVX-512 VPOPCNTDQ");
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
  wavefront::engine::bind_mate(module);
  wavefront::engine::bind_syzygy(module);
  wavefront::engine::bind_training(module);
  wavefront::engine::bind_tree(module);
  wavefront::engine::bind_exchange(module);
}
