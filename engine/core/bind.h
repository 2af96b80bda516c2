// SPDX-License-Identifier: GPL-3.0-or-later
// Declarations shared by the parts of the Python module.
#pragma once

#include <nanobind/nanobind.h>

#include <stdexcept>
#include <string_view>

namespace wavefront::engine {

void bind_chess(nanobind::module_& module);
void bind_exchange(nanobind::module_& module);
void bind_mate(nanobind::module_& module);
void bind_syzygy(nanobind::module_& module);
void bind_training(nanobind::module_& module);
void bind_tree(nanobind::module_& module);

// Returns the text of a Python string, valid as long as the string. Throws std::invalid_argument for lone
// surrogates (undecodable bytes on stdin), which have no UTF-8 form.
inline std::string_view utf8(const nanobind::str& text) {
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (!data) {
    PyErr_Clear();
    throw std::invalid_argument("the text is not valid Unicode");
  }
  return {data, static_cast<size_t>(size)};
}

}  // namespace wavefront::engine
