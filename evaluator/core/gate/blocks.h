// SPDX-License-Identifier: GPL-3.0-or-later
// A queue of bytes that wait to be sent.
#pragma once

#include <cstddef>
#include <deque>
#include <span>

namespace wavefront::gate {

// First in, first out. Memory is allocated in blocks, and freed as soon as a block has been read, so that the
// process shrinks again after a burst.
class BlockQueue {
 public:
  BlockQueue() = default;
  BlockQueue(const BlockQueue&) = delete;
  BlockQueue& operator=(const BlockQueue&) = delete;
  ~BlockQueue();

  // False if memory is short; part of the data may have been appended.
  bool append(const unsigned char* data, std::size_t size);

  // The first contiguous bytes; empty if there are none.
  std::span<const unsigned char> front() const;

  // Removes the first `size` bytes of `front`.
  void pop(std::size_t size);

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

 private:
  static constexpr std::size_t kBlock = 256 * 1024;

  std::deque<unsigned char*> blocks_;
  std::size_t begin_ = 0;     // in the first block
  std::size_t end_ = kBlock;  // in the last one
  std::size_t size_ = 0;
};

}  // namespace wavefront::gate
