// SPDX-License-Identifier: GPL-3.0-or-later
// Access to the memory of Python objects with the buffer protocol.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstddef>
#include <span>
#include <stdexcept>

namespace wavefront::protocol {

// Holds the buffers of a message's frames. Create and destroy it with the interpreter lock held.
class Views {
 public:
  static constexpr std::size_t kMostFrames = 16;

  explicit Views(nanobind::sequence frames) {
    const std::size_t count = nanobind::len(frames);
    if (count == 0 || count > kMostFrames) throw std::invalid_argument("a message has 1 to 16 frames");
    try {
      for (nanobind::handle frame : frames) add(frame);
    } catch (...) {
      release();
      throw;
    }
  }
  ~Views() { release(); }
  Views(const Views&) = delete;
  Views& operator=(const Views&) = delete;

  std::span<const std::span<const unsigned char>> bytes() const { return {bytes_.data(), count_}; }

 private:
  void add(nanobind::handle frame) {
    if (count_ == kMostFrames) throw std::invalid_argument("a message has 1 to 16 frames");
    if (PyObject_GetBuffer(frame.ptr(), &views_[count_], PyBUF_SIMPLE) != 0) throw nanobind::python_error();
    const Py_buffer& view = views_[count_];
    bytes_[count_++] = {static_cast<const unsigned char*>(view.buf), static_cast<std::size_t>(view.len)};
  }

  void release() {
    while (count_ > 0) PyBuffer_Release(&views_[--count_]);
  }

  std::array<Py_buffer, kMostFrames> views_;
  std::array<std::span<const unsigned char>, kMostFrames> bytes_;
  std::size_t count_ = 0;
};

}  // namespace wavefront::protocol
