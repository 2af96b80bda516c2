// SPDX-License-Identifier: GPL-3.0-or-later
// The instruction sets that this CPU has, and those that the core was compiled for.
#pragma once

#if (defined(__GNUC__) || defined(__clang__)) && (defined(__x86_64__) || defined(__i386__))
#include <cpuid.h>
#endif

namespace wavefront::engine {

struct CpuFeatures {
  bool sse42 = false;
  bool popcnt = false;
  bool bmi = false;
  bool bmi2 = false;
  bool avx = false;
  bool avx2 = false;
  bool fma = false;
  bool avx512f = false;
  bool avx512bw = false;
  bool avx512cd = false;
  bool avx512dq = false;
  bool avx512vl = false;
  bool avx512vbmi = false;
  bool avx512vbmi2 = false;
  bool avx512bitalg = false;
  bool avx512vpopcntdq = false;
};

// The instruction sets that the compiler was allowed to use (-march). Constant data: reading it runs no code
// that was compiled for them.
extern const CpuFeatures kCompiledFeatures;

#if (defined(__GNUC__) || defined(__clang__)) && (defined(__x86_64__) || defined(__i386__))
// The instruction sets of this CPU whose registers the operating system saves. Bits: Intel's manual, volume
// 2, CPUID, leaves 1 and 7; volume 1, 13.3, XCR0. __builtin_cpu_supports is false for all of them in programs
// that Zig 0.17 links. Inline, for files that are compiled for any CPU.
inline CpuFeatures detect_cpu_features() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  CpuFeatures found;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx)) return found;
  const auto bit = [](unsigned word, int index) { return (word >> index & 1) != 0; };
  found.sse42 = bit(ecx, 20);
  found.popcnt = bit(ecx, 23);
  const bool has_fma = bit(ecx, 12), has_avx = bit(ecx, 28);
  unsigned saved = 0, high = 0;
  if (bit(ecx, 27)) __asm__("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
  const bool ymm = (saved & 0x6) == 0x6, zmm = (saved & 0xe6) == 0xe6;
  found.avx = ymm && has_avx;
  found.fma = ymm && has_fma;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return found;
  found.bmi = bit(ebx, 3);
  found.bmi2 = bit(ebx, 8);
  found.avx2 = ymm && bit(ebx, 5);
  found.avx512f = zmm && bit(ebx, 16);
  found.avx512dq = zmm && bit(ebx, 17);
  found.avx512cd = zmm && bit(ebx, 28);
  found.avx512bw = zmm && bit(ebx, 30);
  found.avx512vl = zmm && bit(ebx, 31);
  found.avx512vbmi = zmm && bit(ecx, 1);
  found.avx512vbmi2 = zmm && bit(ecx, 6);
  found.avx512bitalg = zmm && bit(ecx, 12);
  found.avx512vpopcntdq = zmm && bit(ecx, 14);
  return found;
}
#endif

}  // namespace wavefront::engine
