// SPDX-License-Identifier: GPL-3.0-or-later
// Helpers for bindings that encode positions: arrays for Python, and checks of names and numbers.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bind.h"
#include "encoding/encoder.h"

namespace wavefront::engine {

using namespace encoding;

// Returns an array that owns the contents of `values`.
template <class T, class... Shape>
auto owned_array(std::vector<T>&& values, Shape... shape) {
  auto* const storage = new std::vector<T>(std::move(values));
  nanobind::capsule owner(storage, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nanobind::ndarray<nanobind::numpy, T, nanobind::ndim<sizeof...(Shape)>>(storage->data(),
                                                                                 {size_t(shape)...}, owner);
}

inline InputFormat checked_format(int number) {
  const std::optional<InputFormat> format = input_format_from_number(number);
  if (!format) {
    throw std::invalid_argument("input format " + std::to_string(number) +
                                " is none of 1, 2, 3, 4, 5, 132, 133");
  }
  return *format;
}

inline HistoryFill checked_fill(const nanobind::str& name) {
  const std::optional<HistoryFill> fill = history_fill_from_name(utf8(name));
  if (!fill) throw std::invalid_argument("history_fill is none of \"no\", \"fen_only\", \"always\"");
  return *fill;
}

}  // namespace wavefront::engine
