// SPDX-License-Identifier: GPL-3.0-or-later
// Python bindings of the connections.
#pragma once

#include <nanobind/nanobind.h>

namespace wavefront::protocol {

// Adds Frame, Stream and Hub, on Linux.
void bind_zmtp(nanobind::module_& module);

}  // namespace wavefront::protocol
