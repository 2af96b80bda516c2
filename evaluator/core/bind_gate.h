// SPDX-License-Identifier: GPL-3.0-or-later
// The gate for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace wavefront::evaluator {

// Adds Gate and ByteAccount to the module, on systems where there is a gate.
void bind_gate(nanobind::module_& module);

}  // namespace wavefront::evaluator
