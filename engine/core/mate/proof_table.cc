// SPDX-License-Identifier: GPL-3.0-or-later
#include "mate/proof_table.h"

#include <new>
#include <utility>

namespace wavefront::mate {
namespace {

constexpr int kFirstClusterBits = 10;  // 96 KiB, enough for most mates in two
constexpr size_t kFirstEntries = (size_t{1} << kFirstClusterBits) * 4;

uint64_t nonzero(uint64_t key) {
  return key ? key : 1;
}

}  // namespace

ProofTable::ProofTable(size_t most_bytes)
    : most_entries_(kFirstEntries), shift_(64 - kFirstClusterBits), entries_(kFirstEntries) {
  // The last growth has entries of half the size as well.
  while (most_entries_ * 3 * sizeof(ProofEntry) <= most_bytes) most_entries_ *= 2;
}

const ProofEntry* ProofTable::find(uint64_t key) const {
  key = nonzero(key);
  const ProofEntry* entry = &entries_[cluster(key)];
  for (size_t i = 0; i < kCluster; ++i, ++entry) {
    if (entry->key == key) return entry;
  }
  return nullptr;
}

ProofEntry& ProofTable::at(uint64_t key) {
  if (entries_.size() < most_entries_ && used_ * 4 > entries_.size() * 3) grow();
  return place(nonzero(key));
}

ProofEntry& ProofTable::place(uint64_t key) {
  ProofEntry* entry = &entries_[cluster(key)];
  ProofEntry* least = entry;
  for (size_t i = 0; i < kCluster; ++i, ++entry) {
    if (entry->key == key) return *entry;
    if (entry->key == 0) {
      ++used_;
      entry->key = key;
      return *entry;
    }
    if (entry->effort < least->effort) least = entry;
  }
  *least = ProofEntry{};
  least->key = key;
  return *least;
}

int ProofTable::fill() const {
  return int(used_ * 1000 / most_entries_);
}

void ProofTable::grow() {
  std::vector<ProofEntry> before;
  try {
    before = std::vector<ProofEntry>(entries_.size() * 2);
  } catch (const std::bad_alloc&) {
    most_entries_ = entries_.size();
    return;
  }
  std::swap(before, entries_);
  --shift_;
  used_ = 0;
  for (const ProofEntry& entry : before) {
    if (entry.key) place(entry.key) = entry;
  }
}

}  // namespace wavefront::mate
