// SPDX-License-Identifier: GPL-3.0-or-later
// Memory of the search tree: 8-byte granules addressed by 32-bit indices.
//
// Nodes, edge lists and child lists are runs of 1 to kMaxRun granules. Runs never move, so indices stay
// valid. Each chunk begins with a bitmap of its granules in use. In it, adjacent free runs form one hole of
// any length, so no memory is lost to lengths that are no longer needed.
//
// Short runs (nodes, child lists) and long ones (edge lists) have separate chunks. Otherwise scattered short
// runs would leave only small holes. Chunks are shared only if one side is full and the other has much free
// memory.
//
// Allocation makes passes over a side's chunks, hole by hole. Runs that a pass cannot use, or that are freed
// behind its position, go to a list for their length, which is used first. The lists have a maximum length.
// The next pass, which starts with empty lists, finds the other runs.
//
// Index 0 is never allocated and means "none". 32-bit indices reach 32 GiB.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace wavefront::tree {

using ArenaIndex = uint32_t;
inline constexpr ArenaIndex kNone = 0;

class Arena {
 public:
  static constexpr size_t kGranuleBytes = 8;
  static constexpr int kMaxRun = 128;
  static constexpr int kLineGranules = 8;  // of a line of the CPU's caches

  // The arena allocates at most max_bytes, maps included, plus the lists of known runs (about 2 MiB at most).
  // It has at least one chunk of 2 MiB.
  explicit Arena(size_t max_bytes) { set_max_bytes(max_bytes); }

  // Returns the index of `granules` consecutive granules with undefined contents. Returns kNone if there is
  // no such run, or the search for a rare one takes too long. packed: use any chunk with free memory.
  ArenaIndex allocate(int granules, bool packed = false);

  // Frees a run. granules: as in its allocation.
  void free(ArenaIndex index, int granules);

  // Frees everything at once. The chunks are kept for reuse.
  void clear();

  // Moves the next chunk to a page of its own size. Random access is then faster, because the CPU keeps the
  // addresses of more memory. Copying costs milliseconds. Does nothing if no chunk is left, or the system
  // cannot do it.
  void enlarge_next_page();

  template <typename T>
  T* at(ArenaIndex index) const {
    return reinterpret_cast<T*>(chunks_[index >> kChunkBits].get() + (index & kChunkMask) * kGranuleBytes);
  }

  // Lets the CPU fetch a granule that is probably not in its caches.
  void prefetch(ArenaIndex index) const { prefetch_address(at<std::byte>(index)); }

  size_t used_bytes() const { return (short_.used + long_.used) * kGranuleBytes; }
  // Usable bytes: max_bytes without the maps.
  size_t capacity_bytes() const { return capacity() * kGranuleBytes; }
  // Bytes allocated from the system.
  size_t held_bytes() const { return chunks_.size() * kChunkBytes; }
  // Bytes ever allocated, freed ones included.
  uint64_t handed_out_bytes() const { return handed_out_ * kGranuleBytes; }

  // Changes the bound. Throws std::logic_error if more is held and the arena is not clear.
  void set_max_bytes(size_t max_bytes);
  bool holds_more_than(size_t max_bytes) const { return chunks_in_use_.size() > chunks_within(max_bytes); }

 private:
  static void prefetch_address([[maybe_unused]] const void* address) {
#ifdef __GNUC__
    __builtin_prefetch(address, 1);
#endif
  }

  static constexpr int kChunkBits = 18;
  static constexpr size_t kChunkGranules = size_t{1} << kChunkBits;
  // Chunks have the size and alignment of x86-64's large pages.
  static constexpr size_t kChunkBytes = kChunkGranules * kGranuleBytes;
  static constexpr ArenaIndex kChunkMask = kChunkGranules - 1;
  static constexpr size_t kMapGranules = kChunkGranules / 64;
  static constexpr size_t kMostKnown = 4096;  // runs in the list of a length
  static constexpr size_t kWaiting = 16;      // freed runs that wait until the CPU has fetched their maps
  // Maximum effort to find a run, in holes checked, and effort of scanning a chunk's map. Scanning all takes
  // too long.
  static constexpr int kMostEffort = 4000, kEffortForChunk = 50;
  static constexpr int kShort = 8;  // the longest of the short runs

  static_assert(kGranuleBytes == sizeof(uint64_t));

  struct Run {
    ArenaIndex index = kNone;
    int granules = 0;
  };

  // The chunks for short or for long runs, and the current pass over them.
  struct Side {
    uint8_t number;
    size_t chunks = 0;
    size_t used = 0;                                           // granules in use
    size_t position = 0;                                       // next position of the pass
    size_t hole = 0, hole_end = 0;                             // rest of its current hole, before `position`
    size_t freed_since_pass = 0;                               // granules freed since it began
    std::array<std::vector<ArenaIndex>, kMaxRun + 1> known{};  // free runs before the position, by length

    size_t held() const { return chunks * (kChunkGranules - kMapGranules); }
    void know(ArenaIndex index, int granules);
    ArenaIndex take_known(int granules, int longest);
    void drop_hole();
    void begin_pass();
  };

  struct Chunk {
    uint8_t side;
    uint32_t used;  // granules
  };

  static size_t chunks_within(size_t max_bytes);
  size_t capacity() const { return max_chunks_ * (kChunkGranules - kMapGranules); }

  ArenaIndex find(int granules, bool packed);
  ArenaIndex take_from_hole(Side& side, int granules);
  bool find_hole(Side& side, int granules);
  int next_hole(Side& side, size_t length);
  Side& side_of(Chunk chunk) { return chunk.side == short_.number ? short_ : long_; }
  bool worth_a_pass(const Side& side) const;
  bool start_chunk(Side& side);
  void mark(ArenaIndex index, int granules, bool in_use);
  void make_free(Run run);
  const uint64_t* map_word(ArenaIndex index) const {
    return at<uint64_t>(index & ~kChunkMask) + (index & kChunkMask) / 64;
  }

  struct FreeChunk {
    void operator()(std::byte* chunk) const { ::operator delete[](chunk, std::align_val_t{kChunkBytes}); }
  };

  std::vector<std::unique_ptr<std::byte[], FreeChunk>> chunks_;
  size_t large_pages_ = 0;  // first chunk that is not known to be one
  std::vector<Chunk> chunks_in_use_;
  size_t max_chunks_ = 1;
  uint64_t handed_out_ = 0;  // granules ever allocated
  Side short_{.number = 0}, long_{.number = 1};
  std::array<Run, kWaiting> freed_{};  // a ring of the last freed runs, still marked as in use
  size_t next_freed_ = 0;
};

}  // namespace wavefront::tree
