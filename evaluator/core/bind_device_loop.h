#pragma once

#include <nanobind/nanobind.h>

namespace wavefront {

void bind_device_loop(nanobind::module_& module);

}  // namespace wavefront
