// SPDX-License-Identifier: GPL-3.0-or-later
// Memory of the search tree: 8-byte granules addressed by 32-bit indices.
//
// Nodes, edge lists and child lists are runs of 1 to kMaxRun granules. Nothing is ever moved, so indices stay
// valid, and no memory is lost to runs of lengths that are no longer wanted: each chunk begins with a map,
// one bit for each of its granules in use, in which runs given back side by side are one hole, whatever their
// lengths were.
//
// Short runs (nodes, child lists) and long ones (edge lists) have chunks of their own, as short ones strewn
// among long ones would leave holes too small for these. Only where one side is full and the other has
// plenty, chunks are shared.
//
// Memory is handed out in passes over a side's chunks, hole by hole. Runs that a pass has no use for, or that
// are given back where it has been already, are kept in a list for their length, and taken from there first.
// The lists are of bounded length: what does not fit in is found by the next pass, which starts with empty
// ones.
//
// Index 0 is never handed out and stands for "none". 32-bit indices reach 32 GiB.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace wavefront::tree {

using ArenaIndex = uint32_t;
inline constexpr ArenaIndex kNone = 0;

class Arena {
 public:
  static constexpr size_t kGranuleBytes = 8;
  static constexpr int kMaxRun = 128;

  // The arena never takes more than max_bytes from the system, its maps included, but for the lists of known
  // runs (some 2 MiB at most). It works in chunks of 1 MiB and has at least one.
  explicit Arena(size_t max_bytes) { set_max_bytes(max_bytes); }

  // An index of `granules` consecutive granules with undefined content, or kNone when no such run is found:
  // there is none, or it is rare.
  ArenaIndex allocate(int granules);

  // Gives a run back; `granules` must be what it was allocated with.
  void free(ArenaIndex index, int granules);

  // Frees everything at once. The chunks are kept for reuse.
  void clear();

  template <typename T>
  T* at(ArenaIndex index) const {
    return reinterpret_cast<T*>(chunks_[index >> kChunkBits].get() + (index & kChunkMask) * kGranuleBytes);
  }

  size_t used_bytes() const { return (short_.used + long_.used) * kGranuleBytes; }
  // What can be in use at a time, less than max_bytes by the maps.
  size_t capacity_bytes() const { return capacity() * kGranuleBytes; }
  // Taken from the system so far.
  size_t held_bytes() const { return chunks_.size() * kChunkGranules * kGranuleBytes; }
  // Bytes handed out since the arena was made, those given back included.
  uint64_t handed_out_bytes() const { return handed_out_ * kGranuleBytes; }

  // Another bound. Throws std::logic_error if more than that is held and the arena is not clear.
  void set_max_bytes(size_t max_bytes);
  bool holds_more_than(size_t max_bytes) const { return chunks_in_use_.size() > chunks_within(max_bytes); }

 private:
  static constexpr int kChunkBits = 17;
  static constexpr size_t kChunkGranules = size_t{1} << kChunkBits;
  static constexpr ArenaIndex kChunkMask = kChunkGranules - 1;
  static constexpr size_t kMapGranules = kChunkGranules / 64;
  static constexpr size_t kMostKnown = 4096;  // runs in the list of a length
  // What may be done to find one run, in holes looked at, and what a look through a chunk's map counts as. A
  // look at all of them takes too long.
  static constexpr int kMostEffort = 4000, kEffortForChunk = 50;
  static constexpr int kShort = 8;  // the longest of the short runs

  static_assert(kGranuleBytes == sizeof(uint64_t) && kGranuleBytes <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);

  // The chunks for short or for long runs, and the current pass over them.
  struct Side {
    uint8_t number;
    size_t chunks = 0;
    size_t used = 0;                // granules handed out and not given back
    size_t position = 0;            // where the pass looks next
    size_t hole = 0, hole_end = 0;  // what is left of its current hole, which lies before that
    size_t freed_since_pass = 0;    // granules given back since it began
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

  ArenaIndex find(int granules);
  ArenaIndex take_from_hole(Side& side, int granules);
  bool find_hole(Side& side, int granules);
  int next_hole(Side& side, size_t length);
  Side& side_of(Chunk chunk) { return chunk.side == short_.number ? short_ : long_; }
  bool worth_a_pass(const Side& side) const;
  bool start_chunk(Side& side);
  void mark(ArenaIndex index, int granules, bool in_use);

  std::vector<std::unique_ptr<std::byte[]>> chunks_;
  std::vector<Chunk> chunks_in_use_;
  size_t max_chunks_ = 1;
  uint64_t handed_out_ = 0;  // granules ever handed out
  Side short_{.number = 0}, long_{.number = 1};
};

}  // namespace wavefront::tree
