#include "zmtp/spin.h"

#ifdef __linux__

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>

namespace wavefront {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kEnough = 8;
constexpr std::chrono::seconds kLookAgain{1};

int processors() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
}

bool are_idle() {
  const int count = processors();
  double load = 0;
  return count >= kEnough && getloadavg(&load, 1) == 1 && load < count / 2.0;
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

}  // namespace wavefront

#endif
