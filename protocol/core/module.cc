// SPDX-License-Identifier: GPL-3.0-or-later
// The Python module protocol._core.
#include <nanobind/nanobind.h>

#include "bind_header.h"
#include "bind_zmtp.h"

NB_MODULE(_core, module) {
  nanobind::set_leak_warnings(false);  // daemon threads may hold objects when the interpreter ends
  module.doc() = "What the protocol does without the interpreter.";
  module.attr("CORE_DIGEST") = WAVEFRONT_CORE_DIGEST;
  wavefront::protocol::bind_header(module);
  wavefront::protocol::bind_zmtp(module);
}
