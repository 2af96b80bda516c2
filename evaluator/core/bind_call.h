// SPDX-License-Identifier: GPL-3.0-or-later
// Conversion of driver calls from Python.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <stdexcept>

#include "device_batch.h"

namespace wavefront::evaluator {

using namespace device;

// Converts a Call of evaluator/backends/gpu/driver/device.py. Throws std::invalid_argument.
inline Call call_of(nanobind::handle each) {
  Call call{nanobind::cast<std::uintptr_t>(each.attr("function")), {}, 0};
  for (nanobind::handle argument : each.attr("arguments")) {
    if (call.argument_count == call.arguments.size())
      throw std::invalid_argument("a call has at most 5 arguments");
    call.arguments[call.argument_count++] = nanobind::cast<std::uintptr_t>(argument);
  }
  if (call.argument_count == 0) throw std::invalid_argument("a call has at least one argument");
  return call;
}

}  // namespace wavefront::evaluator
