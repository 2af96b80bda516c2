// SPDX-License-Identifier: GPL-3.0-or-later
#include "gate/bell.h"

#ifdef __linux__

#include <sys/eventfd.h>

#include <cerrno>
#include <system_error>

namespace wavefront::gate {

Bell::Bell() : event_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!event_) throw std::system_error(errno, std::generic_category(), "eventfd");
}

void Bell::ring(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  if (number != 0) numbers_.push_back(number);
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(event_.get(), &one, sizeof one);
}

std::vector<std::uint64_t> Bell::answer() {
  const std::lock_guard lock(mutex_);
  std::uint64_t count = 0;
  [[maybe_unused]] const auto taken = ::read(event_.get(), &count, sizeof count);
  return std::exchange(numbers_, {});
}

}  // namespace wavefront::gate

#endif
