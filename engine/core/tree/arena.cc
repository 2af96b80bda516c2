#include "tree/arena.h"

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace wavefront {
namespace {

// The first bit of `map` from `from` on that is `value`; `end` if there is none before it. Both are of bits.
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
  return std::clamp<size_t>(max_bytes / (kChunkGranules * kGranuleBytes), 1, kAddressableChunks);
}

void Arena::set_max_bytes(size_t max_bytes) {
  if (holds_more_than(max_bytes)) throw std::logic_error("the arena holds more than its new bound");
  max_chunks_ = chunks_within(max_bytes);
  if (chunks_.size() > max_chunks_) chunks_.resize(max_chunks_);
}

ArenaIndex Arena::allocate(int granules) {
  ArenaIndex index = take_known(granules);
  if (index == kNone && granules <= kShort) index = split_known(granules, kCrumb);
  if (index == kNone) {
    if (hole_end_ - hole_ >= static_cast<size_t>(granules) || find_hole(granules)) {
      index = static_cast<ArenaIndex>(hole_);
      hole_ += static_cast<size_t>(granules);
    } else {
      index = split_known(granules, kMaxRun);
      if (index == kNone) return kNone;
    }
  }
  mark(index, granules, true);
  used_ += static_cast<size_t>(granules);
  handed_out_ += static_cast<uint64_t>(granules);
  return index;
}

void Arena::free(ArenaIndex index, int granules) {
  mark(index, granules, false);
  used_ -= static_cast<size_t>(granules);
  freed_since_pass_ += static_cast<size_t>(granules);
  if (index < position_) know(index, granules);  // The pass will find the others.
}

void Arena::clear() {
  chunks_in_use_ = 0;
  used_ = 0;
  begin_pass();
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

ArenaIndex Arena::take_known(int granules) {
  std::vector<ArenaIndex>& known = known_[static_cast<size_t>(granules)];
  if (known.empty()) return kNone;
  const ArenaIndex index = known.back();
  known.pop_back();
  return index;
}

// Takes the beginning of a known run of more granules, `longest` at most.
ArenaIndex Arena::split_known(int granules, int longest) {
  for (int longer = granules + 1; longer <= longest; ++longer) {
    const ArenaIndex index = take_known(longer);
    if (index == kNone) continue;
    know(index + static_cast<ArenaIndex>(granules), longer - granules);
    return index;
  }
  return kNone;
}

void Arena::know(ArenaIndex index, int granules) {
  std::vector<ArenaIndex>& known = known_[static_cast<size_t>(granules)];
  if (known.size() < kMostKnown) known.push_back(index);
}

// Goes on with the pass to a hole for so many granules; where the chunks end, with the next pass or with a
// fresh chunk. False if there is no such hole, or not among the next so many.
bool Arena::find_hole(int granules) {
  bool began_pass = false;
  for (int looked_at = 0; looked_at < kMostHoles; ++looked_at) {
    if (hole_end_ > hole_) know(static_cast<ArenaIndex>(hole_), static_cast<int>(hole_end_ - hole_));
    hole_ = hole_end_ = 0;
    if (!next_hole()) {
      if (!began_pass && worth_a_pass()) {
        begin_pass();
        began_pass = true;
      } else if (!start_chunk()) {
        return false;
      }
    } else if (hole_end_ - hole_ >= static_cast<size_t>(granules)) {
      return true;
    }
  }
  if (chunks_in_use_ == max_chunks_) return false;
  know(static_cast<ArenaIndex>(hole_), static_cast<int>(hole_end_ - hole_));
  position_ = chunks_in_use_ * kChunkGranules;
  return start_chunk() && next_hole();
}

bool Arena::next_hole() {
  const size_t end = chunks_in_use_ * kChunkGranules;
  while (position_ < end) {
    const size_t chunk = position_ & ~size_t{kChunkMask};
    const uint64_t* map = at<uint64_t>(static_cast<ArenaIndex>(chunk));
    const size_t hole = chunk + find_bit(map, position_ - chunk, kChunkGranules, false);
    position_ = chunk + find_bit(map, hole - chunk, kChunkGranules, true);
    if (hole == chunk + kChunkGranules) continue;
    hole_ = hole;
    hole_end_ = position_;
    return true;
  }
  return false;
}

// As long as chunks can still be had, a pass must find a quarter of what is held; after that, what was given
// back since the last one began must be worth the look at the maps, a 64th of memory.
bool Arena::worth_a_pass() const {
  if (chunks_in_use_ < max_chunks_) return used_ <= held() / 4 * 3 && freed_since_pass_ >= held() / 8;
  return freed_since_pass_ >= held() / 64 && freed_since_pass_ > 0;
}

void Arena::begin_pass() {
  for (std::vector<ArenaIndex>& known : known_) known.clear();
  position_ = hole_ = hole_end_ = 0;
  freed_since_pass_ = 0;
}

bool Arena::start_chunk() {
  if (chunks_in_use_ >= max_chunks_) return false;
  // Not initialised but for the map: the system hands the pages out only as they are first written.
  if (chunks_in_use_ == chunks_.size()) chunks_.emplace_back(new std::byte[kChunkGranules * kGranuleBytes]);
  auto* map = reinterpret_cast<uint64_t*>(chunks_[chunks_in_use_].get());
  std::fill_n(map, kMapGranules / 64, ~uint64_t{0});  // the map's own granules
  std::fill_n(map + kMapGranules / 64, kMapGranules - kMapGranules / 64, uint64_t{0});
  ++chunks_in_use_;
  return true;
}

}  // namespace wavefront
