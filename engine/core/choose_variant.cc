// SPDX-License-Identifier: GPL-3.0-or-later
// The Python module engine._core of a portable wheel: loads the best variant of the core for this CPU.
//
// The wheel has the core compiled for several levels of x86-64. This file runs on all of them and replaces
// the core: its initialisation function returns the result of the chosen variant's. The variants are separate
// files next to it, because standard library functions compiled for one level must not be linked into
// another.
#include <Python.h>
#include <dlfcn.h>

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

// Returns the folder of this library, with a final slash; empty if unknown.
std::string own_folder() {
  Dl_info info;
  if (!dladdr(reinterpret_cast<const void*>(&own_folder), &info) || !info.dli_fname) return "";
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash + 1);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) PyObject* PyInit__core() {
  const CpuFeatures cpu = wavefront::engine::detect_cpu_features();
  // For tests and measurements. A variant itself refuses a level that this CPU cannot run.
  const char* wanted = getenv("WAVEFRONT_CPU_LEVEL");
  for (const Variant& variant : kVariants) {
    const bool chosen = wanted ? std::string(wanted) == variant.level : variant.runs_on(cpu);
    if (!chosen) continue;
    const std::string path = own_folder() + "_core_" + variant.level + ".so";
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) return fail(std::string("engine._core cannot be loaded: ") + dlerror());
    const auto initialise = reinterpret_cast<InitialisationFunction>(dlsym(library, "PyInit__core"));
    if (!initialise) return fail("engine._core is damaged: " + path + " has no initialisation function");
    return initialise();
  }
  return fail(
      wanted ? std::string("WAVEFRONT_CPU_LEVEL must be v2, v3 or v4, not ") + wanted
             : "engine._core needs SSE4.2 and POPCNT (x86-64-v2, all CPUs since 2011), which this CPU lacks: "
               "build it here with 'pip install .' in a checkout");
}
