// SPDX-License-Identifier: GPL-3.0-or-later
// Looking again and again before a thread sleeps, where processors are idle: to be woken takes 50 us and
// more, above all in a virtual machine, whose idle processors have left it.
#pragma once

#ifdef __linux__

#include <chrono>

namespace wavefront::wire {

// For so long it is worth it: a GPU answers small batches within it.
inline constexpr std::chrono::microseconds kSpin{300};

// Whether threads may spin: this process may use eight processors or more, and more than four of the
// machine's were idle in the last minute. So programs that compete for processors soon stop spinning. Any
// thread.
bool may_spin();

}  // namespace wavefront::wire

#endif
