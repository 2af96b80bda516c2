// SPDX-License-Identifier: GPL-3.0-or-later
#include "tree/evaluation_cache.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <new>
#include <utility>

namespace wavefront::tree {
namespace {

constexpr size_t kTypicalRecordBytes = 96;
constexpr size_t kMaxBytes = size_t{0xfffffff0} * 8;

constexpr int kMostPower = 15;
constexpr float kTenBits = 1023.0f;

// share: 0 to 1.
uint32_t in_ten_bits(float share) {
  return static_cast<uint32_t>(std::lrint(std::clamp(share, 0.0f, 1.0f) * kTenBits)) & 0x3ff;
}

// Returns memory of zeros, in large pages if the system has them: with small ones, nearly every access waits
// for an address translation. An evaluation takes 5 % less time (random backend, two cores, 2026-11-29).
void* zeroed(size_t bytes) {
  void* memory = std::calloc(std::max<size_t>(bytes, 1), 1);
  if (memory == nullptr) throw std::bad_alloc();
#ifdef __linux__
  constexpr uintptr_t kPage = 4096;
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(memory) + kPage - 1) / kPage * kPage;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(memory) + bytes) / kPage * kPage;
  if (end > begin) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
  return memory;
}

}  // namespace

EvaluationCache::EvaluationCache(size_t bytes)
    : capacity_(std::min(bytes, kMaxBytes) / kAlign * kAlign),
      index_mask_((std::bit_ceil(capacity_ / kTypicalRecordBytes + 2) - 1) & ~size_t{1}),
      ring_(static_cast<std::byte*>(zeroed(capacity_))),
      offset_mask_(static_cast<uint32_t>(std::bit_ceil(capacity_ / kAlign + 2) - 1)),
      index_(static_cast<uint32_t*>(zeroed(sizeof(uint32_t) * (index_mask_ + 2)))) {}

// Returns the record of a position, and copies its header; null if it is not cached.
std::byte* EvaluationCache::record_of(uint64_t key, size_t moves, Header& header) const {
  const uint32_t* slots = bucket(key);
  for (int way = 0; way < 2; ++way) {
    const uint32_t offset = slots[way] & offset_mask_;
    if (offset == 0 || slots[way] - offset != tag(key)) continue;
    std::byte* record = ring_.get() + (offset - 1) * kAlign;
    std::memcpy(&header, record, sizeof(header));
    if (header.key == key && header.moves == moves) return record;
  }
  return nullptr;
}

std::span<const uint16_t> EvaluationCache::find(uint64_t key, size_t moves, Value& value) const {
  Header header;
  const std::byte* record = record_of(key, moves, header);
  if (record == nullptr) return {};
  value = header.value;
  return {reinterpret_cast<const uint16_t*>(record + sizeof(Header)), moves};
}

void EvaluationCache::note_searched(uint64_t key, size_t moves, const SearchedValue& value) {
  const int power = std::min(static_cast<int>(std::bit_width(value.visits)) - 1, kMostPower);
  Header header;
  std::byte* record = record_of(key, moves, header);
  if (record == nullptr || power < static_cast<int>(header.searched_power) || power < 1) return;
  header.searched_power = static_cast<uint32_t>(power) & 0xf;
  header.searched_q = in_ten_bits((value.q + 1.0f) / 2.0f);
  header.searched_d = in_ten_bits(value.d);
  std::memcpy(record, &header, sizeof(header));
}

SearchedValue EvaluationCache::searched(uint64_t key, size_t moves) const {
  Header header;
  if (record_of(key, moves, header) == nullptr || header.searched_power == 0) return {0.0f, 0.0f, 0};
  return {2.0f * static_cast<float>(header.searched_q) / kTenBits - 1.0f,
          static_cast<float>(header.searched_d) / kTenBits, uint32_t{1} << header.searched_power};
}

EvaluationCache::Header EvaluationCache::header_at(size_t offset) const {
  Header header;
  std::memcpy(&header, ring_.get() + offset, sizeof(header));
  return header;
}

// Makes room for a record at `next_`, and finds the first old record that stays intact.
void EvaluationCache::reserve(size_t bytes) {
  if (next_ + bytes > capacity_) {
    lap_end_ = next_;
    next_ = oldest_ = 0;
    wrapped_ = true;
  }
  while (oldest_ < std::min(next_ + bytes, lap_end_)) oldest_ += record_bytes(header_at(oldest_).moves);
}

void EvaluationCache::forget_searched() {
  for (const auto& [begin, end] : {std::pair{size_t{0}, next_}, {oldest_, lap_end_}}) {
    for (size_t offset = begin; offset < end;) {
      Header header = header_at(offset);
      if (header.searched_power > 0) {
        header.searched_power = 0;
        std::memcpy(ring_.get() + offset, &header, sizeof(header));
      }
      offset += record_bytes(header.moves);
    }
  }
}

void EvaluationCache::insert(uint64_t key, const Value& value, std::span<const uint16_t> priors) {
  size_t bytes = record_bytes(priors.size());
  if (bytes > capacity_) return;
  reserve(bytes);
  const Header header{key, value, static_cast<uint32_t>(priors.size()) & 0xff, 0, 0, 0};
  std::byte* record = ring_.get() + next_;
  std::memcpy(record, &header, sizeof(header));
  std::memcpy(record + sizeof(header), priors.data(), priors.size_bytes());

  // A bucket has the newer record first, then the older one; the oldest is dropped.
  uint32_t* slots = bucket(key);
  slots[1] = slots[0];
  slots[0] = tag(key) | static_cast<uint32_t>(next_ / kAlign + 1);
  next_ += bytes;
}

void EvaluationCache::clear() {
  std::fill_n(index_.get(), index_mask_ + 2, 0u);
  next_ = oldest_ = lap_end_ = 0;
  wrapped_ = false;
}

int EvaluationCache::fill_permille() const {
  if (capacity_ == 0) return 0;
  return wrapped_ ? 1000 : static_cast<int>(next_ * 1000 / capacity_);
}

}  // namespace wavefront::tree
