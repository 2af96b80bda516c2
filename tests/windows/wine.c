// SPDX-License-Identifier: GPL-3.0-or-later
// A library for tests under Wine: asks Linux for what Windows grants to each process.
//
// onnxruntime computes int8 with the tile registers (AMX) that CPUID reports. Linux ends a process that uses them
// without arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA), and Wine 8 does not call it.
__declspec(dllexport) long permit_tiles(void) {
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(158), "D"(0x1023), "S"(18) : "rcx", "r11", "memory");
  return result;
}
