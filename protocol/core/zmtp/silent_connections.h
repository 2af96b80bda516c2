// SPDX-License-Identifier: GPL-3.0-or-later
// Connections that have not been admitted yet, and the choice of which to end for a new one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

namespace wavefront::wire {

// Belongs to one thread. A source is an address (source_of_peer).
class SilentConnections {
 public:
  // per_source: maximum connections of one source.
  explicit SilentConnections(std::size_t per_source) : per_source_(per_source) {}

  std::size_t size() const { return numbers_.size(); }

  void add(std::uint64_t number, const std::string& source) {
    remove(number);
    const std::uint64_t tick = ticks_++;
    numbers_[number] = {source, tick};
    sources_[source].emplace(tick, number);
  }

  // Removes a connection that was admitted or has ended; false if it is not here.
  bool remove(std::uint64_t number) {
    const auto found = numbers_.find(number);
    if (found == numbers_.end()) return false;
    const auto source = sources_.find(found->second.source);
    source->second.erase(found->second.tick);
    if (source->second.empty()) sources_.erase(source);
    numbers_.erase(found);
    return true;
  }

  // Returns the oldest connection of a source that may have no more.
  std::optional<std::uint64_t> displaced_by(const std::string& source) const {
    const auto found = sources_.find(source);
    if (found == sources_.end() || found->second.size() < per_source_) return std::nullopt;
    return found->second.begin()->second;
  }

  // Returns the oldest connection of the source with the most; among several such sources, the oldest of all.
  std::optional<std::uint64_t> victim() const {
    const Silent* most = nullptr;
    for (const auto& [name, each] : sources_) {
      const bool more = most == nullptr || each.size() > most->size();
      if (more || (each.size() == most->size() && each.begin()->first < most->begin()->first)) most = &each;
    }
    return most == nullptr ? std::nullopt : std::optional(most->begin()->second);
  }

 private:
  struct Place {
    std::string source;
    std::uint64_t tick = 0;
  };
  using Silent = std::map<std::uint64_t, std::uint64_t>;  // number by tick, oldest first

  std::size_t per_source_;
  std::uint64_t ticks_ = 0;
  std::unordered_map<std::uint64_t, Place> numbers_;
  std::unordered_map<std::string, Silent> sources_;
};

}  // namespace wavefront::wire
