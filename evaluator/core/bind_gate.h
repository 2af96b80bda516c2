// The gate for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace wavefront::evaluator {

// Adds Gate and Link to the module, on systems where there is a gate.
void bind_gate(nanobind::module_& module);

}  // namespace wavefront::evaluator
