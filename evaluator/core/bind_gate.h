// SPDX-License-Identifier: GPL-3.0-or-later
// Python bindings of the gate.
#pragma once

#include <nanobind/nanobind.h>

namespace wavefront::evaluator {

// Adds Gate and ByteAccount to the module, on systems that support the gate.
void bind_gate(nanobind::module_& module);

}  // namespace wavefront::evaluator
