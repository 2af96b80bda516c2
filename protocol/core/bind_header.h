// SPDX-License-Identifier: GPL-3.0-or-later
// Python bindings of the header decoders.
#pragma once

#include <nanobind/nanobind.h>

namespace wavefront::protocol {

// Adds plain_evaluate and plain_result.
void bind_header(nanobind::module_& module);

}  // namespace wavefront::protocol
