// SPDX-License-Identifier: GPL-3.0-or-later
// A stand-in for libhipblaslt.so: the functions that evaluator/backends/gpu/blas/hipblaslt.py calls, with the
// library's own enumerators (hipblaslt.h of ROCm 7 and 10). It offers three algorithms for every product.
#include "blas.h"

namespace {

constexpr int ALGORITHMS = 3;
constexpr std::size_t WORKSPACE_BYTES = 1 << 20;
constexpr uint32_t MARK = 0x4c617369;

enum Attribute { TRANSA = 0, TRANSB = 1, EPILOGUE = 2, BIAS_POINTER = 3, BIAS_DATA_TYPE = 4 };
enum Epilogue { DEFAULT = 1, RELU = 2, BIAS = 4, SWISH_EXT = 65536 };

struct Operation {
  int transpose_a = blas::OP_N, transpose_b = blas::OP_N, bias_type = -1;
  uint32_t epilogue = DEFAULT;
  const void* bias = nullptr;
};

struct Layout {
  int type;
  uint64_t rows, columns;
  int64_t stride;
};

struct Preference {
  uint64_t workspace_bytes = 0;
};

struct Algorithm {
  uint32_t mark;
  int32_t index;
  uint8_t reserved[8];
  std::size_t workspace_bytes;
};

struct Heuristic {
  Algorithm algorithm;
  std::size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(Heuristic) == 56);

template <class T>
int set(T& member, const void* from, std::size_t bytes) {
  if (bytes != sizeof(T)) return blas::INVALID_VALUE;
  std::memcpy(&member, from, bytes);
  return blas::SUCCESS;
}

template <class T>
int create(T** out, T value) {
  *out = new T(value);
  blas::count(1);
  return blas::SUCCESS;
}

template <class T>
int destroy(T* object) {
  delete object;
  blas::count(-1);
  return blas::SUCCESS;
}

bool consistent(const Operation& operation, const Layout& a, const Layout& b, const Layout& c,
                const Layout& d) {
  const uint32_t known = RELU | BIAS | SWISH_EXT;
  return operation.transpose_a == blas::OP_T && operation.transpose_b == blas::OP_N && a.rows == b.rows &&
         d.rows == a.columns && d.columns == b.columns && c.rows == d.rows && c.columns == d.columns &&
         a.type == b.type && b.type == c.type && c.type == d.type && a.stride >= int64_t(a.rows) &&
         b.stride >= int64_t(b.rows) && c.stride >= int64_t(c.rows) && d.stride >= int64_t(d.rows) &&
         (operation.epilogue == DEFAULT || !(operation.epilogue & ~known)) &&
         (!(operation.epilogue & BIAS) || (operation.bias && operation.bias_type == d.type));
}

float relu(float x) {
  return x > 0.0f ? x : 0.0f;
}
float swish(float x) {
  return x / (1.0f + std::exp(-x));
}

}  // namespace

extern "C" {

int hipblasLtCreate(int** handle) {
  return blas::fails("create") ? blas::NOT_INITIALIZED : create(handle, 0);
}

int hipblasLtDestroy(int* handle) {
  return destroy(handle);
}

int hipblasLtGetVersion(int*, int* version) {
  *version = 100300;
  return blas::SUCCESS;
}

int hipblasLtMatmulDescCreate(Operation** operation, int compute, int scale) {
  if (compute != blas::COMPUTE_32F || scale != blas::R_32F) return blas::INVALID_VALUE;
  return create(operation, Operation{});
}

int hipblasLtMatmulDescDestroy(Operation* operation) {
  return destroy(operation);
}

int hipblasLtMatmulDescSetAttribute(Operation* operation, int attribute, const void* from,
                                    std::size_t bytes) {
  switch (attribute) {
    case TRANSA:
      return set(operation->transpose_a, from, bytes);
    case TRANSB:
      return set(operation->transpose_b, from, bytes);
    case EPILOGUE:
      return set(operation->epilogue, from, bytes);
    case BIAS_POINTER:
      return set(operation->bias, from, bytes);
    case BIAS_DATA_TYPE:
      return set(operation->bias_type, from, bytes);
  }
  return blas::INVALID_VALUE;
}

int hipblasLtMatrixLayoutCreate(Layout** layout, int type, uint64_t rows, uint64_t columns, int64_t stride) {
  return create(layout, Layout{type, rows, columns, stride});
}

int hipblasLtMatrixLayoutDestroy(Layout* layout) {
  return destroy(layout);
}

int hipblasLtMatmulPreferenceCreate(Preference** preference) {
  return create(preference, Preference{});
}

int hipblasLtMatmulPreferenceDestroy(Preference* preference) {
  return destroy(preference);
}

int hipblasLtMatmulPreferenceSetAttribute(Preference* preference, int attribute, const void* from,
                                          std::size_t bytes) {
  return attribute == 1 ? set(preference->workspace_bytes, from, bytes) : blas::INVALID_VALUE;
}

int hipblasLtMatmulAlgoGetHeuristic(int*, Operation* operation, Layout* a, Layout* b, Layout* c, Layout* d,
                                    Preference* preference, int wanted, Heuristic* results, int* found) {
  *found = 0;
  if (blas::fails("heuristics")) return blas::NOT_SUPPORTED;
  if (wanted < 1 || !consistent(*operation, *a, *b, *c, *d)) return blas::INVALID_VALUE;
  if (blas::fails("no results") || preference->workspace_bytes < WORKSPACE_BYTES) return blas::SUCCESS;
  for (; *found < ALGORITHMS && *found < wanted; ++*found)
    results[*found] = {{MARK, *found, {}, WORKSPACE_BYTES}, WORKSPACE_BYTES, 0, 1.0f, {}};
  return blas::SUCCESS;
}

#ifndef WITHOUT_MATMUL
int hipblasLtMatmul(int*, Operation* operation, const float* alpha, const void* a, Layout* layout_a,
                    const void* b, Layout* layout_b, const float* beta, const void* c, Layout* layout_c,
                    void* d, Layout* layout_d, const Algorithm* algorithm, void* workspace,
                    std::size_t workspace_bytes, void* stream) {
  if (!consistent(*operation, *layout_a, *layout_b, *layout_c, *layout_d) || algorithm->mark != MARK ||
      !workspace || workspace_bytes < algorithm->workspace_bytes)
    return blas::INVALID_VALUE;
  const bool biased = operation->epilogue != DEFAULT && operation->epilogue & BIAS;
  return blas::queue(
      stream, {int(layout_d->rows), int(layout_d->columns), int(layout_a->rows), layout_d->type, a, b, c, d,
               layout_a->stride, layout_b->stride, layout_c->stride, layout_d->stride, *alpha, *beta,
               biased ? operation->bias : nullptr, operation->bias_type,
               operation->epilogue & RELU        ? relu
               : operation->epilogue & SWISH_EXT ? swish
                                                 : nullptr,
               algorithm->index});
}
#endif
}
