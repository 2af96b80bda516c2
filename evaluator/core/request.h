// SPDX-License-Identifier: GPL-3.0-or-later
// Validation of a request's arrays.
#pragma once

#include "device_batch.h"

namespace wavefront::device {

// True if the arrays of a request are valid as in PositionBatch of protocol/batch.py: offsets from 0 to the
// number of moves in steps of at most 256, policy indices below 1858, finite clocks, and reserved bytes of
// zero. The offsets have position_count + 1 entries.
bool is_sound(const Part& part);

}  // namespace wavefront::device
