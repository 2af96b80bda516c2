// SPDX-License-Identifier: GPL-3.0-or-later
// A library for tests under Wine. As wine.dll it asks Linux for what Windows grants to each process; as
// bcryptprimitives.dll it has the one function of that library that extensions written in Rust need.
//
// onnxruntime computes int8 with the tile registers (AMX) that CPUID reports. Linux ends a process that uses
// them without arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA), and Wine 8 does not call it.
__declspec(dllexport) long permit_tiles(void) {
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(158), "D"(0x1023), "S"(18) : "rcx", "r11", "memory");
  return result;
}

// SystemFunction036 of advapi32: the random numbers of Windows.
__declspec(dllimport) unsigned char __stdcall SystemFunction036(void* buffer, unsigned long size);

__declspec(dllexport) int __stdcall ProcessPrng(void* buffer, unsigned long long size) {
  return SystemFunction036(buffer, (unsigned long)size);
}
