// SPDX-License-Identifier: GPL-3.0-or-later
// The Python module protocol._core.
#ifdef _WIN32
#define NOMINMAX
#include <windows.h>
#endif

#include <nanobind/nanobind.h>

#include "bind_header.h"
#include "bind_zmtp.h"

NB_MODULE(_core, module) {
#ifdef _WIN32
  timeBeginPeriod(1);  // Otherwise waits end up to 15.6 ms late: each process of ours imports this.
#endif
  nanobind::set_leak_warnings(false);  // daemon threads may hold objects when the interpreter ends
  module.doc() = "What the protocol does without the interpreter.";
  module.attr("CORE_DIGEST") = WAVEFRONT_CORE_DIGEST;
  wavefront::protocol::bind_header(module);
  wavefront::protocol::bind_zmtp(module);
}
