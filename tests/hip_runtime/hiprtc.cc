// SPDX-License-Identifier: GPL-3.0-or-later
// libhiprtc.so: takes a source and hands it to the strategy's compiler.
#include <cstring>

#include "runtime.h"

namespace {

constexpr int SUCCESS = 0, INVALID_INPUT = 3;  // of hiprtcResult

struct Program {
  std::string source, name;
  standin::Delivered delivered;
};

}  // namespace

EXPORT int hiprtcVersion(int* major, int* minor) {
  *major = 9;  // of the compiler; what AMD's own says is no longer tied to ROCm's
  *minor = 0;
  return standin_injected("hiprtcVersion");
}

EXPORT const char* hiprtcGetErrorString(int) {
  return "an error of the stand-in compiler";
}

EXPORT int hiprtcCreateProgram(void** handle, const char* source, const char* name, int headers,
                               const char* const*, const char* const*) {
  if (const int error = standin_injected("hiprtcCreateProgram")) return error;
  if (headers) return INVALID_INPUT;
  *handle = new Program{source, name, {}};
  standin_count_programs(1);
  return SUCCESS;
}

EXPORT int hiprtcDestroyProgram(void** handle) {
  delete (Program*)*handle;
  *handle = nullptr;
  standin_count_programs(-1);
  return standin_injected("hiprtcDestroyProgram");
}

EXPORT int hiprtcCompileProgram(void* handle, int count, const char* const* options) {
  if (const int error = standin_injected("hiprtcCompileProgram")) return error;
  auto* program = (Program*)handle;
  standin_strategy strategy;
  standin_current_strategy(&strategy);
  return strategy.compile(program->source.c_str(), program->name.c_str(), options, count,
                          &program->delivered);
}

EXPORT int hiprtcGetCodeSize(void* handle, std::size_t* bytes) {
  *bytes = ((Program*)handle)->delivered.code.size();
  return standin_injected("hiprtcGetCodeSize");
}

EXPORT int hiprtcGetCode(void* handle, char* code) {
  const auto& from = ((Program*)handle)->delivered.code;
  std::memcpy(code, from.data(), from.size());
  return standin_injected("hiprtcGetCode");
}

EXPORT int hiprtcGetProgramLogSize(void* handle, std::size_t* bytes) {
  *bytes = ((Program*)handle)->delivered.log.size() + 1;
  return standin_injected("hiprtcGetProgramLogSize");
}

EXPORT int hiprtcGetProgramLog(void* handle, char* log) {
  std::strcpy(log, ((Program*)handle)->delivered.log.c_str());
  return standin_injected("hiprtcGetProgramLog");
}
