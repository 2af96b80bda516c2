// SPDX-License-Identifier: GPL-3.0-or-later
// Unauthenticated connections, and the choice of which to displace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>

namespace wavefront::gate {

// Belongs to one thread. A source is an address (source_of_peer). All operations are logarithmic in the
// number of connections, except victim, which is constant.
class Lobby {
 public:
  void add(std::uint64_t number, const std::string& source);

  // Notes a step of a connection's handshake; it then counts as the newest.
  void touch(std::uint64_t number);

  // Removes a connection; false if it does not exist.
  bool remove(std::uint64_t number);

  std::size_t size() const { return entries_.size(); }
  std::size_t size_of(const std::string& source) const;

  // The longest silent connection of a source; nothing if the source has none.
  std::optional<std::uint64_t> oldest_of(const std::string& source) const;

  // The same for the source with the most connections. Among several sources, the one with the oldest.
  std::optional<std::uint64_t> victim() const;

 private:
  struct Entry {
    std::string source;
    std::uint64_t tick;
  };
  using Silent = std::map<std::uint64_t, std::uint64_t>;  // number by tick, oldest first
  using Rank = std::tuple<std::size_t, std::uint64_t, std::uint64_t>;

  void put(std::uint64_t number, const std::string& source);
  void take(std::uint64_t number, const Entry& entry);
  static Rank rank(const Silent& silent);

  std::uint64_t ticks_ = 0;
  std::unordered_map<std::uint64_t, Entry> entries_;
  std::unordered_map<std::string, Silent> sources_;
  std::set<Rank> ranks_;  // one per source; the first is the victim's
};

}  // namespace wavefront::gate
