// SPDX-License-Identifier: GPL-3.0-or-later
#include "tree/arena.h"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <utility>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace wavefront::tree {
namespace {

// Returns the first bit of `map` from `from` on that is `value`; `end` if there is none before it.
size_t find_bit(const uint64_t* map, size_t from, size_t end, bool value) {
  if (from >= end) return end;
  const uint64_t flip = value ? 0 : ~uint64_t{0};
  size_t word = from / 64;
  uint64_t bits = (map[word] ^ flip) & (~uint64_t{0} << (from % 64));
  while (bits == 0) {
    if (++word * 64 >= end) return end;
    bits = map[word] ^ flip;
  }
  return word * 64 + static_cast<size_t>(std::countr_zero(bits));
}

}  // namespace

size_t Arena::chunks_within(size_t max_bytes) {
  constexpr size_t kAddressableChunks = (size_t{1} << 32) / kChunkGranules;
  return std::clamp<size_t>(max_bytes / kChunkBytes, 1, kAddressableChunks);
}

void Arena::set_max_bytes(size_t max_bytes) {
  if (holds_more_than(max_bytes)) throw std::logic_error("the arena holds more than its new bound");
  max_chunks_ = chunks_within(max_bytes);
  if (chunks_.size() > max_chunks_) chunks_.resize(max_chunks_);
  large_pages_ = std::min(large_pages_, chunks_.size());
}

ArenaIndex Arena::allocate(int granules, bool packed) {
  const ArenaIndex index = find(granules, packed);
  if (index == kNone) return kNone;
  mark(index, granules, true);
  Chunk& chunk = chunks_in_use_[index >> kChunkBits];
  chunk.used += static_cast<uint32_t>(granules);
  side_of(chunk).used += static_cast<size_t>(granules);
  handed_out_ += static_cast<uint64_t>(granules);
  return index;
}

void Arena::free(ArenaIndex index, int granules) {
  prefetch_address(map_word(index));
  Chunk& chunk = chunks_in_use_[index >> kChunkBits];
  chunk.used -= static_cast<uint32_t>(granules);
  Side& side = side_of(chunk);
  side.used -= static_cast<size_t>(granules);
  side.freed_since_pass += static_cast<size_t>(granules);
  Run& place = freed_[next_freed_++ % kWaiting];
  const Run earlier = std::exchange(place, {index, granules});
  if (earlier.index != kNone) make_free(earlier);
}

void Arena::make_free(Run run) {
  mark(run.index, run.granules, false);
  Side& side = side_of(chunks_in_use_[run.index >> kChunkBits]);
  if (run.index < side.position) side.know(run.index, run.granules);  // The pass finds the others.
}

void Arena::clear() {
  freed_.fill({});
  chunks_in_use_.clear();
  for (Side* side : {&short_, &long_}) {
    side->chunks = side->used = 0;
    side->begin_pass();
  }
}

void Arena::enlarge_next_page() {
#ifdef __linux__
  constexpr int kCollapse = 25;  // MADV_COLLAPSE, of Linux 6.1 and later
  if (large_pages_ == chunks_.size()) return;
  if (madvise(chunks_[large_pages_].get(), kChunkBytes, kCollapse) == 0) {
    ++large_pages_;
  } else {
    large_pages_ = chunks_.size();
  }
#endif
}

void Arena::mark(ArenaIndex index, int granules, bool in_use) {
  uint64_t* map = at<uint64_t>(index & ~kChunkMask);
  size_t from = index & kChunkMask;
  const size_t end = from + static_cast<size_t>(granules);
  while (from < end) {
    const size_t bits = std::min(end, (from / 64 + 1) * 64) - from;
    const uint64_t mask = (~uint64_t{0} >> (64 - bits)) << (from % 64);
    if (in_use) {
      map[from / 64] |= mask;
    } else {
      map[from / 64] &= ~mask;
    }
    from += bits;
  }
}

void Arena::Side::know(ArenaIndex index, int granules) {
  std::vector<ArenaIndex>& runs = known[static_cast<size_t>(granules)];
  if (runs.size() < kMostKnown) runs.push_back(index);
}

void Arena::Side::drop_hole() {
  if (hole_end > hole) know(static_cast<ArenaIndex>(hole), static_cast<int>(hole_end - hole));
  hole = hole_end = 0;
}

// Allocates from a known run of at least `granules` and at most `longest`.
ArenaIndex Arena::Side::take_known(int granules, int longest) {
  for (int length = granules; length <= longest; ++length) {
    std::vector<ArenaIndex>& runs = known[static_cast<size_t>(length)];
    if (runs.empty()) continue;
    const ArenaIndex index = runs.back();
    runs.pop_back();
    if (length > granules) know(index + static_cast<ArenaIndex>(granules), length - granules);
    return index;
  }
  return kNone;
}

void Arena::Side::begin_pass() {
  for (std::vector<ArenaIndex>& runs : known) runs.clear();
  position = hole = hole_end = 0;
  freed_since_pass = 0;
}

// Returns the best free run.
ArenaIndex Arena::find(int granules, bool packed) {
  const bool is_short = granules <= kShort;
  Side& own = is_short ? short_ : long_;
  ArenaIndex index = own.take_known(granules, is_short ? kShort : granules);
  if (index == kNone && is_short) index = long_.take_known(granules, kShort);  // too short for edge lists
  if (index == kNone) index = take_from_hole(own, granules);
  if (index == kNone) index = own.take_known(granules, kMaxRun);
  if (index != kNone) return index;
  Side& other = is_short ? long_ : short_;
  if (!packed && other.used > (is_short ? other.held() / 16 * 15 : other.held() / 4 * 3)) return kNone;
  index = take_from_hole(other, granules);
  return index != kNone ? index : other.take_known(granules, kMaxRun);
}

ArenaIndex Arena::take_from_hole(Side& side, int granules) {
  const auto length = static_cast<size_t>(granules);
  if (side.hole_end - side.hole < length && !find_hole(side, granules)) return kNone;
  const auto index = static_cast<ArenaIndex>(side.hole);
  side.hole += length;
  return index;
}

// Continues the pass to a hole for `granules`; after the last chunk, with another pass or a new chunk.
// Returns false if there is no such hole, or none nearby.
bool Arena::find_hole(Side& side, int granules) {
  const auto length = static_cast<size_t>(granules);
  bool began_pass = false;
  for (int effort = kMostEffort; effort > 0;) {
    side.drop_hole();
    if (side.position >= chunks_in_use_.size() * kChunkGranules) {
      if (!began_pass && worth_a_pass(side)) {
        side.begin_pass();
        began_pass = true;
      } else if (!start_chunk(side)) {
        return false;
      }
    }
    effort -= next_hole(side, length);
    if (side.hole_end - side.hole >= length) return true;
  }
  side.drop_hole();
  return start_chunk(side) && next_hole(side, length) > 0;
}

// Continues to the next hole or chunk. Returns the effort, in holes.
int Arena::next_hole(Side& side, size_t length) {
  const size_t number = side.position >> kChunkBits;
  const size_t chunk = number << kChunkBits, end = chunk + kChunkGranules;
  const Chunk& info = chunks_in_use_[number];
  if (info.side != side.number || info.used + length > kChunkGranules - kMapGranules) {
    side.position = end;
    return 1;
  }
  const uint64_t* map = at<uint64_t>(static_cast<ArenaIndex>(chunk));
  const size_t hole = chunk + find_bit(map, side.position - chunk, kChunkGranules, false);
  side.position = chunk + find_bit(map, hole - chunk, kChunkGranules, true);
  if (hole == end) return kEffortForChunk;
  side.hole = hole;
  side.hole_end = side.position;
  return 1;
}

// While new chunks are available, a pass needs a quarter of the held memory free. After that, it needs a 32nd
// of the memory freed since the last pass began, to be worth the scan of the maps.
bool Arena::worth_a_pass(const Side& side) const {
  const size_t held = side.held();
  if (chunks_in_use_.size() < max_chunks_)
    return side.used <= held / 4 * 3 && side.freed_since_pass >= held / 8 && held > 0;
  return side.freed_since_pass >= held / 32 && held > 0;
}

// Continues the pass in a new chunk.
bool Arena::start_chunk(Side& side) {
  const size_t chunk = chunks_in_use_.size();
  if (chunk >= max_chunks_) return false;
  // Only the map is initialised: the system allocates the pages on their first write.
  if (chunk == chunks_.size()) {
    chunks_.emplace_back(
        static_cast<std::byte*>(::operator new[](kChunkBytes, std::align_val_t{kChunkBytes})));
  }
  auto* map = reinterpret_cast<uint64_t*>(chunks_[chunk].get());
  std::fill_n(map, kMapGranules / 64, ~uint64_t{0});  // the map's own granules
  std::fill_n(map + kMapGranules / 64, kMapGranules - kMapGranules / 64, uint64_t{0});
  chunks_in_use_.push_back({side.number, 0});
  ++side.chunks;
  side.position = chunk * kChunkGranules;
  return true;
}

}  // namespace wavefront::tree
