#include "tree/evaluation_cache.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace wavefront {
namespace {

constexpr size_t kTypicalRecordBytes = 96;
constexpr size_t kMaxBytes = size_t{0xfffffff0} * 8;

}  // namespace

EvaluationCache::EvaluationCache(size_t bytes)
    : capacity_(std::min(bytes, kMaxBytes) / kAlign * kAlign),
      index_mask_((std::bit_ceil(capacity_ / kTypicalRecordBytes + 2) - 1) & ~size_t{1}),
      ring_(new std::byte[capacity_]),
      index_(new uint32_t[index_mask_ + 2]()) {}

std::span<const uint16_t> EvaluationCache::find(uint64_t key, size_t moves, Value& value) const {
  const uint32_t* slots = bucket(key);
  for (int way = 0; way < 2; ++way) {
    if (slots[way] == 0) continue;
    const std::byte* record = ring_.get() + (slots[way] - 1) * kAlign;
    Header header;
    std::memcpy(&header, record, sizeof(header));
    if (header.key != key || header.moves != moves) continue;
    value = header.value;
    return {reinterpret_cast<const uint16_t*>(record + sizeof(Header)), moves};
  }
  return {};
}

void EvaluationCache::insert(uint64_t key, const Value& value, std::span<const uint16_t> priors) {
  size_t bytes = record_bytes(priors.size());
  if (bytes > capacity_) return;
  if (next_ + bytes > capacity_) {
    next_ = 0;
    wrapped_ = true;
  }
  Header header{key, value, static_cast<uint32_t>(priors.size())};
  std::byte* record = ring_.get() + next_;
  std::memcpy(record, &header, sizeof(header));
  std::memcpy(record + sizeof(header), priors.data(), priors.size_bytes());

  // The newer record of a bucket comes first, the older one goes second, the oldest is forgotten.
  uint32_t* slots = bucket(key);
  slots[1] = slots[0];
  slots[0] = static_cast<uint32_t>(next_ / kAlign + 1);
  next_ += bytes;
}

void EvaluationCache::clear() {
  std::fill_n(index_.get(), index_mask_ + 2, 0u);
  next_ = 0;
  wrapped_ = false;
}

int EvaluationCache::fill_permille() const {
  if (capacity_ == 0) return 0;
  return wrapped_ ? 1000 : static_cast<int>(next_ * 1000 / capacity_);
}

}  // namespace wavefront
