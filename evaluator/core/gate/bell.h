// SPDX-License-Identifier: GPL-3.0-or-later
// How other threads are heard by the gate's.
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

  // Readable while somebody has rung.
  int descriptor() const { return event_.get(); }

  // Names a connection that is to be looked at; 0 names none. Any thread.
  void ring(std::uint64_t number);

  // The numbers since the last call.
  std::vector<std::uint64_t> answer();

 private:
  Descriptor event_;
  std::mutex mutex_;
  std::vector<std::uint64_t> numbers_;
};

}  // namespace wavefront::gate

#endif
