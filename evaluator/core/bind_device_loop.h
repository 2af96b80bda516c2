// SPDX-License-Identifier: GPL-3.0-or-later
#pragma once

#include <nanobind/nanobind.h>

namespace wavefront::evaluator {

void bind_device_loop(nanobind::module_& module);

}  // namespace wavefront::evaluator
