// SPDX-License-Identifier: GPL-3.0-or-later
#include "zmtp/spin.h"

#ifdef __linux__

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <limits>

namespace wavefront::wire {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kEnough = 8;
constexpr double kIdle = 4;  // Two threads spin, and each wakes another.
constexpr std::chrono::seconds kLookAgain{1};

// Returns the container's CPU quota in CPUs; infinite without a limit.
double granted() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");  // "QUOTA PERIOD", or "max PERIOD"
  double quota = 0;
  double period = 0;
  if (file >> quota >> period && period > 0) return quota / period;
  return std::numeric_limits<double>::infinity();
}

// Returns the number of CPUs that this process may use.
double usable() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const int count = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
  return std::min<double>(count, granted());
}

// Uses the load of the whole machine.
bool are_idle() {
  static const bool enough = usable() >= kEnough;
  double load = 0;
  return enough && getloadavg(&load, 1) == 1 && load < sysconf(_SC_NPROCESSORS_ONLN) - kIdle;
}

}  // namespace

bool may_spin() {
  static std::atomic<Clock::rep> look_at{0};
  static std::atomic<bool> idle{false};
  const Clock::rep now = Clock::now().time_since_epoch().count();
  if (now >= look_at.load(std::memory_order_relaxed)) {
    look_at.store(now + Clock::duration(kLookAgain).count(), std::memory_order_relaxed);
    idle.store(are_idle(), std::memory_order_relaxed);
  }
  return idle.load(std::memory_order_relaxed);
}

}  // namespace wavefront::wire

#endif
