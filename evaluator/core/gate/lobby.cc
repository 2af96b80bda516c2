// SPDX-License-Identifier: GPL-3.0-or-later
#include "gate/lobby.h"

#include <limits>

namespace wavefront::gate {

void Lobby::add(std::uint64_t number, const std::string& source) {
  put(number, source);
}

void Lobby::touch(std::uint64_t number) {
  const auto found = entries_.find(number);
  if (found == entries_.end()) return;
  const Entry entry = found->second;
  take(number, entry);
  put(number, entry.source);
}

bool Lobby::remove(std::uint64_t number) {
  const auto found = entries_.find(number);
  if (found == entries_.end()) return false;
  const Entry entry = found->second;
  take(number, entry);
  return true;
}

std::size_t Lobby::size_of(const std::string& source) const {
  const auto found = sources_.find(source);
  return found == sources_.end() ? 0 : found->second.size();
}

std::optional<std::uint64_t> Lobby::oldest_of(const std::string& source) const {
  const auto found = sources_.find(source);
  return found == sources_.end() ? std::nullopt : std::optional(found->second.begin()->second);
}

std::optional<std::uint64_t> Lobby::victim() const {
  return ranks_.empty() ? std::nullopt : std::optional(std::get<2>(*ranks_.begin()));
}

void Lobby::put(std::uint64_t number, const std::string& source) {
  Silent& silent = sources_[source];
  if (!silent.empty()) ranks_.erase(rank(silent));
  const std::uint64_t tick = ticks_++;
  silent.emplace(tick, number);
  entries_[number] = {source, tick};
  ranks_.insert(rank(silent));
}

void Lobby::take(std::uint64_t number, const Entry& entry) {
  const auto found = sources_.find(entry.source);
  Silent& silent = found->second;
  ranks_.erase(rank(silent));
  silent.erase(entry.tick);
  if (silent.empty()) {
    sources_.erase(found);
  } else {
    ranks_.insert(rank(silent));
  }
  entries_.erase(number);
}

Lobby::Rank Lobby::rank(const Silent& silent) {
  const auto& [tick, number] = *silent.begin();
  return {std::numeric_limits<std::size_t>::max() - silent.size(), tick, number};
}

}  // namespace wavefront::gate
