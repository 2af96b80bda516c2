// SPDX-License-Identifier: GPL-3.0-or-later
#include "gate/blocks.h"

#ifdef __linux__

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace wavefront::gate {

BlockQueue::~BlockQueue() {
  for (unsigned char* block : blocks_) munmap(block, kBlock);
}

bool BlockQueue::append(const unsigned char* data, std::size_t size) {
  while (size > 0) {
    if (end_ == kBlock) {
      void* const block = mmap(nullptr, kBlock, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (block == MAP_FAILED) return false;
      blocks_.push_back(static_cast<unsigned char*>(block));
      end_ = 0;
    }
    const std::size_t part = std::min(size, kBlock - end_);
    std::memcpy(blocks_.back() + end_, data, part);
    end_ += part;
    size_ += part;
    data += part;
    size -= part;
  }
  return true;
}

std::span<const unsigned char> BlockQueue::front() const {
  if (size_ == 0) return {};
  const std::size_t end = blocks_.size() == 1 ? end_ : kBlock;
  return {blocks_.front() + begin_, end - begin_};
}

void BlockQueue::pop(std::size_t size) {
  begin_ += size;
  size_ -= size;
  if (size_ > 0 && begin_ < kBlock) return;
  munmap(blocks_.front(), kBlock);
  blocks_.pop_front();
  begin_ = 0;
  if (blocks_.empty()) end_ = kBlock;
}

}  // namespace wavefront::gate

#endif
