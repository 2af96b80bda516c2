// Memory of the search tree: 8-byte granules addressed by 32-bit indices.
//
// Nodes, edge lists and child lists are runs of 1 to kMaxRun granules. Freed runs go to a free list of their
// length and are taken from there first, so memory stays where it is and indices stay valid; nothing is ever
// moved. Index 0 is never handed out and stands for "none". 2^32 granules reach 32 GiB.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace wavefront {

using ArenaIndex = uint32_t;
inline constexpr ArenaIndex kNone = 0;

class Arena {
 public:
  static constexpr size_t kGranuleBytes = 8;
  static constexpr int kMaxRun = 128;

  // The arena never holds more than max_bytes, rounded up to whole chunks of 4 MiB.
  explicit Arena(size_t max_bytes) { set_max_bytes(max_bytes); }

  // An index of `granules` consecutive granules with undefined content, or kNone when the arena is full.
  ArenaIndex allocate(int granules);

  // Gives a run back; `granules` must be what it was allocated with.
  void free(ArenaIndex index, int granules);

  // Frees everything at once. The chunks are kept for reuse.
  void clear();

  template <typename T>
  T* at(ArenaIndex index) const {
    return reinterpret_cast<T*>(chunks_[index >> kChunkBits].get() + (index & kChunkMask) * kGranuleBytes);
  }

  size_t used_bytes() const { return used_ * kGranuleBytes; }
  size_t max_bytes() const { return max_chunks_ * kChunkGranules * kGranuleBytes; }

  // Takes effect for chunks still to be allocated; what is held already stays.
  void set_max_bytes(size_t max_bytes);

 private:
  static constexpr int kChunkBits = 19;
  static constexpr size_t kChunkGranules = size_t{1} << kChunkBits;
  static constexpr ArenaIndex kChunkMask = kChunkGranules - 1;

  static_assert(kGranuleBytes <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);

  ArenaIndex take_free(int granules);
  bool start_chunk();

  std::vector<std::unique_ptr<std::byte[]>> chunks_;
  size_t max_chunks_ = 1;
  size_t chunks_in_use_ = 0;
  size_t next_ = kChunkGranules;                // first unused granule of the last chunk in use
  size_t used_ = 0;                             // granules handed out
  std::array<ArenaIndex, kMaxRun + 1> free_{};  // a free run's first word names the next one
};

}  // namespace wavefront
