// SPDX-License-Identifier: GPL-3.0-or-later
// What clients may send: the checks of a request's arrays.
#pragma once

#include "device_batch.h"

namespace wavefront::device {

// Whether the arrays of a request are as PositionBatch of protocol/batch.py says: offsets that run from 0 to
// the number of moves in steps of at most 256, policy indices below 1858, clocks that are finite, and
// reserved bytes that are zero. The offsets have position_count + 1 entries.
bool is_sound(const Part& part);

}  // namespace wavefront::device
