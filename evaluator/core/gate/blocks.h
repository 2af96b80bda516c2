// SPDX-License-Identifier: GPL-3.0-or-later
// Bytes that wait to be sent.
#pragma once

#include <cstddef>
#include <deque>
#include <span>

namespace wavefront::gate {

// First in, first out. The memory comes from the system in blocks and goes back to it as soon as a block has
// been read: after a burst the process is as small as before.
class BlockQueue {
 public:
  BlockQueue() = default;
  BlockQueue(const BlockQueue&) = delete;
  BlockQueue& operator=(const BlockQueue&) = delete;
  ~BlockQueue();

  // False if there is no memory; part of it may be there then.
  bool append(const unsigned char* data, std::size_t size);

  // The first bytes, as many as lie together; empty if there are none.
  std::span<const unsigned char> front() const;

  // Removes that many of those that `front` has returned.
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
