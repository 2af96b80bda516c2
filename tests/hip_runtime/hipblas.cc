// SPDX-License-Identifier: GPL-3.0-or-later
// A stand-in for libhipblas.so: the few functions that evaluator/backends/gpu/blas/hipblas.py calls.
#include <cstdio>
#include <cstdlib>

#include "blas.h"

namespace {

struct Handle {
  void* stream = nullptr;
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
};

}  // namespace

extern "C" {

int hipblasCreate(Handle** handle) {
  if (blas::fails("create")) return blas::ALLOC_FAILED;
  *handle = new Handle;
  blas::count(1);
  return blas::SUCCESS;
}

int hipblasDestroy(Handle* handle) {
  delete handle;
  blas::count(-1);
  return blas::SUCCESS;
}

int hipblasGetVersion(Handle*, int* version) {
  *version = 30200;
  return blas::SUCCESS;
}

#ifndef WITHOUT_WORKSPACE
int hipblasSetWorkspace(Handle* handle, void* workspace, std::size_t bytes) {
  handle->workspace = workspace;
  handle->workspace_bytes = bytes;
  return blas::SUCCESS;
}
#endif

int hipblasSetStream(Handle* handle, void* stream) {
  handle->stream = stream;
  return blas::SUCCESS;
}

int hipblasGemmEx(Handle* handle, int op_a, int op_b, int m, int n, int k, const void* alpha, const void* a,
                  int type_a, int lda, const void* b, int type_b, int ldb, const void* beta, void* c,
                  int type_c, int ldc, int compute, int algorithm) {
  if (const char* call = std::getenv("STANDIN_ABORT"); call && std::string(call) == "hipblasGemmEx") {
    std::fprintf(stderr, "rocBLAS error: Cannot read TensileLibrary.dat: No such file or directory\n");
    std::abort();
  }
  if (algorithm != 160 || compute != blas::COMPUTE_32F) return blas::INVALID_ENUM;
  if (op_a != blas::OP_T || op_b != blas::OP_N || type_a != type_b || type_a != type_c)
    return blas::NOT_SUPPORTED;
  if (lda < k || ldb < k || ldc < m || !handle->workspace || !a || !b || !c) return blas::INVALID_VALUE;
  return blas::queue(handle->stream, {m, n, k, type_a, a, b, c, c, lda, ldb, ldc, ldc, *(const float*)alpha,
                                      *(const float*)beta, nullptr, 0, nullptr, 0});
}
}
