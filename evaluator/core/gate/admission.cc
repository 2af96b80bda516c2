// SPDX-License-Identifier: GPL-3.0-or-later
#include "gate/admission.h"

namespace wavefront::gate {

std::optional<std::uint64_t> Admission::Lobbies::victim() const {
  const auto stranger = strangers.victim();
  return stranger ? stranger : proven.victim();
}

void Admission::add(std::uint64_t number, Door door, const std::string& source) {
  at(door).strangers.add(number, source);
  places_[number] = {door, source};
}

void Admission::touch(std::uint64_t number) {
  const auto found = places_.find(number);
  if (found != places_.end()) at(found->second.door).strangers.touch(number);
}

void Admission::prove(std::uint64_t number) {
  const auto found = places_.find(number);
  if (found == places_.end()) return;
  const auto& [door, source] = found->second;
  if (at(door).strangers.remove(number)) at(door).proven.add(number, source);
}

void Admission::remove(std::uint64_t number) {
  const auto found = places_.find(number);
  if (found == places_.end()) return;
  Lobbies& lobbies = at(found->second.door);
  lobbies.strangers.remove(number);
  lobbies.proven.remove(number);
  places_.erase(found);
}

std::optional<std::uint64_t> Admission::displaced_by(Door door, const std::string& source) const {
  const Lobbies& lobbies = at(door);
  // The local door has no such limit: all its clients belong to one user.
  if (door == Door::kPublic && lobbies.strangers.size_of(source) >= limits_.per_source)
    return lobbies.strangers.oldest_of(source);
  const std::size_t size = lobbies.strangers.size() + lobbies.proven.size();
  return size >= roll_.room(door) ? lobbies.victim() : std::nullopt;
}

std::optional<std::uint64_t> Admission::dispensable_for(Door door) const {
  const auto stranger = at(Door::kPublic).victim();
  return stranger || door == Door::kPublic ? stranger : at(Door::kLocal).victim();
}

}  // namespace wavefront::gate
