// SPDX-License-Identifier: GPL-3.0-or-later
// Busy-waiting before blocking, when CPUs are idle. Waking a blocked thread takes 50 us or more, especially
// in a
// virtual machine whose idle CPUs were descheduled.
#pragma once

#ifdef __linux__

#include <chrono>

namespace wavefront::wire {

// Time to busy-wait: a GPU answers small batches within it.
inline constexpr std::chrono::microseconds kSpin{300};

// Returns true if threads may busy-wait: this process may use at least eight CPUs, and more than four of the
// machine's CPUs were idle in the last minute. Programs that compete for CPUs thus soon stop spinning. Any
// thread may call it.
bool may_spin();

}  // namespace wavefront::wire

#endif
