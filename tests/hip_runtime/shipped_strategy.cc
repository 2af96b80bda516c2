// SPDX-License-Identifier: GPL-3.0-or-later
// The default strategy on Windows, where nothing compiles: a kernel on CPU fibers is a DLL behind 64 bytes
// that look like an ELF header (windows.py).
#include <windows.h>

#include <fstream>

#include "runtime.h"

namespace standin {

namespace {

int load(const void* code, std::size_t bytes, const char*, void** module) {
  constexpr std::size_t HEADER = 64;
  char folder[MAX_PATH], path[MAX_PATH];
  GetTempPathA(sizeof folder, folder);
  GetTempFileNameA(folder, "hip", 0, path);
  std::ofstream(path, std::ios::binary).write((const char*)code + HEADER, (std::streamsize)(bytes - HEADER));
  const HMODULE library = LoadLibraryA(path);
  if (!library) return INVALID_IMAGE;
  *module = (void*)library;
  return SUCCESS;
}

int function(void* module, const char* name, void** found) {
  *found = (void*)GetProcAddress((HMODULE)module, (std::string("standin_launch_") + name).c_str());
  return *found ? SUCCESS : NOT_FOUND;
}

int launch(void* kernel, const unsigned* grid, const unsigned* block, unsigned shared_bytes,
           const void* arguments, std::size_t) {
  using Launcher = int (*)(const unsigned*, int, unsigned long, const void*);
  return ((Launcher)kernel)(grid, (int)(block[0] * block[1] * block[2]), shared_bytes, arguments);
}

void unload(void* module) {
  FreeLibrary((HMODULE)module);
}

}  // namespace

const standin_strategy& fiber_strategy() {
  static const standin_strategy fibers{nullptr, load, function, launch, unload};
  return fibers;
}

}  // namespace standin
