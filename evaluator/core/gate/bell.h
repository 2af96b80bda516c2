// SPDX-License-Identifier: GPL-3.0-or-later
// Wakeups of the gate's thread by other threads.
#pragma once

#ifdef __linux__

#include <cstdint>
#include <mutex>
#include <vector>

#include "zmtp/descriptor.h"

namespace wavefront::gate {

using namespace wire;

class Bell {
 public:
  // Throws std::system_error.
  Bell();

  // Readable after a ring.
  int descriptor() const { return event_.get(); }

  // Names a connection that needs attention; 0 for none. Any thread.
  void ring(std::uint64_t number);

  // The numbers rung since the last call.
  std::vector<std::uint64_t> answer();

 private:
  Descriptor event_;
  std::mutex mutex_;
  std::vector<std::uint64_t> numbers_;
};

}  // namespace wavefront::gate

#endif
