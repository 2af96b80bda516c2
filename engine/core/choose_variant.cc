// SPDX-License-Identifier: GPL-3.0-or-later
// The Python module engine._core of a portable wheel: loads the best variant of the core for this CPU.
//
// The wheel has the core compiled for several levels of x86-64. This file runs on all of them and replaces
// the core: its initialisation function returns the result of the chosen variant's. The variants are separate
// files next to it, because standard library functions compiled for one level must not be linked into
// another.
#include <Python.h>

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <filesystem>
#else
#include <dlfcn.h>
#endif

#include <string>

#include "cpu_features.h"

namespace {

using wavefront::engine::CpuFeatures;

struct Variant {
  const char* level;
  bool (*runs_on)(const CpuFeatures& cpu);
};

// Best first. The instruction sets named are those that every CPU of the level has and older ones lack.
constexpr Variant kVariants[] = {
    {"v4",
     [](const CpuFeatures& cpu) {
       return cpu.avx512f && cpu.avx512bw && cpu.avx512cd && cpu.avx512dq && cpu.avx512vl && cpu.avx2 &&
              cpu.bmi2 && cpu.fma;
     }},
    {"v3", [](const CpuFeatures& cpu) { return cpu.avx2 && cpu.bmi && cpu.bmi2 && cpu.fma; }},
    {"v2", [](const CpuFeatures& cpu) { return cpu.sse42 && cpu.popcnt; }},
};

using InitialisationFunction = PyObject* (*)();

PyObject* fail(const std::string& message) {
  PyErr_SetString(PyExc_ImportError, message.c_str());
  return nullptr;
}

#ifdef _WIN32

// Loads a library of this one's folder. Returns its initialisation function, or null with a Python error.
InitialisationFunction load(const std::string& name) {
  HMODULE own = nullptr;
  wchar_t path[32768];  // The longest path on Windows.
  if (!GetModuleHandleExW(
          GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
          reinterpret_cast<const wchar_t*>(&load), &own) ||
      !GetModuleFileNameW(own, path, 32768)) {
    fail("engine._core does not find its own folder: Windows error " + std::to_string(GetLastError()));
    return nullptr;
  }
  const auto file = std::filesystem::path(path).replace_filename(name + ".pyd");
  const HMODULE library = LoadLibraryExW(file.c_str(), nullptr, LOAD_WITH_ALTERED_SEARCH_PATH);
  if (!library) {
    fail("engine._core cannot load " + name + ".pyd: Windows error " + std::to_string(GetLastError()));
    return nullptr;
  }
  const auto found = reinterpret_cast<InitialisationFunction>(
      reinterpret_cast<void*>(GetProcAddress(library, "PyInit__core")));
  if (!found) fail("engine._core is damaged: " + name + ".pyd has no initialisation function");
  return found;
}

#else

// Returns the folder of this library, with a final slash; empty if unknown.
std::string own_folder() {
  Dl_info info;
  if (!dladdr(reinterpret_cast<const void*>(&own_folder), &info) || !info.dli_fname) return "";
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

// Loads a library of this one's folder. Returns its initialisation function, or null with a Python error.
InitialisationFunction load(const std::string& name) {
  const std::string path = own_folder() + name + ".so";
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    fail(std::string("engine._core cannot be loaded: ") + dlerror());
    return nullptr;
  }
  const auto found = reinterpret_cast<InitialisationFunction>(dlsym(library, "PyInit__core"));
  if (!found) fail("engine._core is damaged: " + path + " has no initialisation function");
  return found;
}

#endif

}  // namespace

PyMODINIT_FUNC PyInit__core() {
  const CpuFeatures cpu = wavefront::engine::detect_cpu_features();
  // For tests and measurements. A variant itself refuses a level that this CPU cannot run.
  const char* wanted = getenv("WAVEFRONT_CPU_LEVEL");
  for (const Variant& variant : kVariants) {
    const bool chosen = wanted ? std::string(wanted) == variant.level : variant.runs_on(cpu);
    if (!chosen) continue;
    const InitialisationFunction initialise = load(std::string("_core_") + variant.level);
    return initialise ? initialise() : nullptr;
  }
  return fail(
      wanted ? std::string("WAVEFRONT_CPU_LEVEL must be v2, v3 or v4, not ") + wanted
             : "engine._core needs SSE4.2 and POPCNT (x86-64-v2, all CPUs since 2011), which this CPU lacks: "
               "build it here with 'pip install .' in a checkout");
}
