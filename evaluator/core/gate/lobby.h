// SPDX-License-Identifier: GPL-3.0-or-later
// Connections that have not authenticated, and which of them makes room for a newcomer.
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

// Belongs to one thread. A source is an address (source_of_peer). All operations cost the logarithm of the
// number of connections, except victim, which is constant.
class Lobby {
 public:
  void add(std::uint64_t number, const std::string& source);

  // Notes that a connection got one step further in its handshake: it counts as the newest.
  void touch(std::uint64_t number);

  // Removes a connection; false if it is not there.
  bool remove(std::uint64_t number);

  std::size_t size() const { return entries_.size(); }
  std::size_t size_of(const std::string& source) const;

  // The connection of a source that has been silent for longest; nothing if the source has none.
  std::optional<std::uint64_t> oldest_of(const std::string& source) const;

  // The same of the source with the most connections. Of several such sources, that of the oldest connection.
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
  std::set<Rank> ranks_;  // one for each source: the first is the victim's
};

}  // namespace wavefront::gate
