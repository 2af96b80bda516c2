#include "tree/arena.h"

#include <algorithm>

namespace wavefront {

void Arena::set_max_bytes(size_t max_bytes) {
  constexpr size_t kChunkBytes = kChunkGranules * kGranuleBytes;
  constexpr size_t kAddressableChunks = (size_t{1} << 32) / kChunkGranules;
  max_chunks_ = std::clamp<size_t>((max_bytes + kChunkBytes - 1) / kChunkBytes, 1, kAddressableChunks);
}

ArenaIndex Arena::allocate(int granules) {
  ArenaIndex index = kNone;
  if (free_[granules] != kNone) {
    index = take_free(granules);
  } else if (next_ + granules <= kChunkGranules || start_chunk()) {
    index = static_cast<ArenaIndex>(((chunks_in_use_ - 1) << kChunkBits) + next_);
    next_ += granules;
  } else {
    // Full: split a longer free run.
    for (int longer = granules + 1; longer <= kMaxRun && index == kNone; ++longer) {
      if (free_[longer] == kNone) continue;
      index = take_free(longer);
      used_ += longer - granules;
      free(index + granules, longer - granules);
    }
    if (index == kNone) return kNone;
  }
  used_ += granules;
  return index;
}

void Arena::free(ArenaIndex index, int granules) {
  *at<ArenaIndex>(index) = free_[granules];
  free_[granules] = index;
  used_ -= granules;
}

void Arena::clear() {
  free_.fill(kNone);
  chunks_in_use_ = 0;
  next_ = kChunkGranules;
  used_ = 0;
}

ArenaIndex Arena::take_free(int granules) {
  ArenaIndex index = free_[granules];
  free_[granules] = *at<ArenaIndex>(index);
  return index;
}

bool Arena::start_chunk() {
  if (chunks_in_use_ >= max_chunks_) return false;
  // The rest of the old chunk is cut into runs for the free lists.
  while (next_ < kChunkGranules) {
    int run = static_cast<int>(std::min<size_t>(kChunkGranules - next_, kMaxRun));
    used_ += run;
    free(static_cast<ArenaIndex>(((chunks_in_use_ - 1) << kChunkBits) + next_), run);
    next_ += run;
  }
  // Not initialised: the system hands the pages out only as they are first written.
  if (chunks_in_use_ == chunks_.size()) chunks_.emplace_back(new std::byte[kChunkGranules * kGranuleBytes]);
  next_ = chunks_in_use_ == 0 ? 1 : 0;  // index 0 means "none"
  ++chunks_in_use_;
  return true;
}

}  // namespace wavefront
