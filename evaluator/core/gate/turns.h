// SPDX-License-Identifier: GPL-3.0-or-later
// Connections that wait for the same thing, served round-robin over their sources.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>

namespace wavefront::gate {

// A source with thousands of connections delays only itself. Within a source the order is by number.
class Turns {
 public:
  bool empty() const { return order_.empty(); }

  void push(const std::string& source, std::uint64_t number) {
    Source& entry = sources_[source];
    if (entry.numbers.empty()) line_up(source, entry);
    entry.numbers.insert(number);
  }

  // Removes and returns the next one, which must exist.
  std::uint64_t pop() {
    const auto first = order_.begin();
    const std::string source = first->second;
    Source& entry = sources_[source];
    const std::uint64_t number = *entry.numbers.begin();
    order_.erase(first);
    entry.numbers.erase(number);
    if (entry.numbers.empty()) {
      sources_.erase(source);
    } else {
      line_up(source, entry);
    }
    return number;
  }

  // Removes one that no longer waits, if it exists.
  void remove(const std::string& source, std::uint64_t number) {
    const auto found = sources_.find(source);
    if (found == sources_.end() || found->second.numbers.erase(number) == 0) return;
    if (!found->second.numbers.empty()) return;
    order_.erase(found->second.turn);
    sources_.erase(found);
  }

 private:
  struct Source {
    std::uint64_t turn = 0;
    std::set<std::uint64_t> numbers;
  };

  void line_up(const std::string& source, Source& entry) {
    entry.turn = turns_++;
    order_.emplace(entry.turn, source);
  }

  std::uint64_t turns_ = 0;
  std::map<std::uint64_t, std::string> order_;  // sources by turn
  std::unordered_map<std::string, Source> sources_;
};

}  // namespace wavefront::gate
