// SPDX-License-Identifier: GPL-3.0-or-later
// What the stand-ins for libhipblas.so and libhipblaslt.so share: a product on host memory, and what a test
// can make them do wrong. Tests only.
//
// Work is queued in the stream by the runtime's own hipLaunchHostFunc, so that it runs in order and can be
// captured. On the null stream it is done at once.
#pragma once
#include <dlfcn.h>

#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <mutex>
#include <string>

namespace blas {
namespace {  // of each library its own

enum Status {
  SUCCESS = 0,
  NOT_INITIALIZED = 1,
  ALLOC_FAILED = 2,
  INVALID_VALUE = 3,
  EXECUTION_FAILED = 5,
  NOT_SUPPORTED = 7,
  INVALID_ENUM = 10
};
enum Type { R_32F = 0, R_16F = 2, R_16BF = 14 };
enum { OP_N = 111, OP_T = 112, COMPUTE_32F = 2 };

// What goes wrong, and at which algorithm (-1: at all of them). Guarded by `mutex`; `alive` counts handles
// and descriptors that were not destroyed.
struct State {
  std::mutex mutex;
  std::condition_variable changed;
  std::string failure;
  int algorithm = -1;
  int alive = 0;
};

State only;
State& state() {
  return only;
}

bool fails(const char* what, int algorithm = -1) {
  std::lock_guard lock(state().mutex);
  return state().failure == what &&
         (state().algorithm < 0 || algorithm < 0 || state().algorithm == algorithm);
}

void count(int by) {
  std::lock_guard lock(state().mutex);
  state().alive += by;
}

float half_to_float(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  float value;
  if (exponent == 31)
    value = fraction ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
  else
    value = exponent ? std::ldexp(1024.0f + fraction, exponent - 25) : std::ldexp(float(fraction), -24);
  return bits >> 15 ? -value : value;
}

uint16_t float_to_half(float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const float size = std::fabs(value);
  if (std::isnan(value)) return sign | 0x7e00;
  if (size >= 65520.0f) return sign | 0x7c00;
  int exponent;
  std::frexp(size, &exponent);
  if (size == 0.0f || exponent < -13) return sign | uint16_t(std::nearbyint(std::ldexp(size, 24)));
  const int rounded = int(std::nearbyint(std::ldexp(size, 11 - exponent)));  // 1024 to 2048
  return sign | uint16_t(((exponent + 13) << 10) + rounded);
}

float load(const void* from, std::size_t index, int type) {
  if (type == R_32F) return ((const float*)from)[index];
  const uint16_t bits = ((const uint16_t*)from)[index];
  if (type == R_16F) return half_to_float(bits);
  const uint32_t wide = uint32_t(bits) << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

void store(void* to, std::size_t index, float value, int type) {
  if (type == R_32F) {
    ((float*)to)[index] = value;
  } else if (type == R_16F) {
    ((uint16_t*)to)[index] = float_to_half(value);
  } else {
    uint32_t wide;
    std::memcpy(&wide, &value, 4);
    ((uint16_t*)to)[index] = std::isnan(value) ? 0x7fc0 : uint16_t((wide + 0x7fff + (wide >> 16 & 1)) >> 16);
  }
}

// Column-major d [m, n] = activation(op(a) [m, k] b [k, n] + beta c + bias); a is [k, m], transposed.
struct Product {
  int m, n, k, type;
  const void *a, *b, *c;
  void* d;
  std::int64_t lda, ldb, ldc, ldd;
  float alpha, beta;
  const void* bias;
  int bias_type;
  float (*activation)(float);
  int algorithm;
};

void compute(const Product& p) {
  const int terms = fails("wrong", p.algorithm) ? p.k / 2 : p.k;
  for (int column = 0; column < p.n; column++)
    for (int row = 0; row < p.m; row++) {
      float sum = 0.0f;
      for (int i = 0; i < terms; i++)
        sum += load(p.a, row * p.lda + i, p.type) * load(p.b, column * p.ldb + i, p.type);
      sum *= p.alpha;
      if (p.beta != 0.0f) sum += p.beta * load(p.c, column * p.ldc + row, p.type);
      if (p.bias) sum += load(p.bias, row, p.bias_type);
      store(p.d, column * p.ldd + row, p.activation ? p.activation(sum) : sum, p.type);
    }
  const std::size_t last = (p.n - 1) * p.ldd + p.m - 1;
  if (fails("nan", p.algorithm)) store(p.d, last, std::numeric_limits<float>::quiet_NaN(), p.type);
  if (fails("one element", p.algorithm)) store(p.d, last, load(p.d, last, p.type) + 2.0f, p.type);
}

int queue(void* stream, const Product& product) {
  if (fails("multiply", product.algorithm)) return EXECUTION_FAILED;
  if (fails("hang", product.algorithm)) {  // as a compilation that takes minutes: until the test lets go
    std::unique_lock lock(state().mutex);
    state().changed.wait(lock, [] { return state().failure != "hang"; });
    return EXECUTION_FAILED;  // so that it does not go on in a runtime that has been reset
  }
  if (fails("nothing", product.algorithm)) return SUCCESS;
  if (!stream) {
    compute(product);
    return SUCCESS;
  }
  using Function = void (*)(void*);
  using Launch = int (*)(void*, Function, void*);
  void* runtime = dlopen("libamdhip64.so", RTLD_NOW | RTLD_NOLOAD);
  const auto launch = runtime ? (Launch)dlsym(runtime, "hipLaunchHostFunc") : nullptr;
  if (!launch) return EXECUTION_FAILED;
  // A captured product runs as often as its graph is launched, so nobody knows when to delete it.
  auto* kept = new Product(product);
  const int status = launch(stream, [](void* data) { compute(*(const Product*)data); }, kept);
  return status ? EXECUTION_FAILED : SUCCESS;
}

}  // namespace
}  // namespace blas

// Lets the library do something wrong from now on; "" is nothing. "create": no handle. "heuristics": an
// error. "no results": none. "multiply": an error. "nothing": success, and no result. "wrong": half the sum.
// "one element", "nan": in the last place. "hang": `multiply` does not return until told something else.
// algorithm: the one that it is about, or -1.
extern "C" void standin_blas_fail(const char* failure, int algorithm) {
  auto& state = blas::state();
  std::lock_guard lock(state.mutex);
  state.failure = failure;
  state.algorithm = algorithm;
  state.changed.notify_all();
}

// Handles and descriptors that were created and not destroyed.
extern "C" int standin_blas_alive() {
  std::lock_guard lock(blas::state().mutex);
  return blas::state().alive;
}
