// SPDX-License-Identifier: GPL-3.0-or-later
// The tables in some folders.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "syzygy/material.h"
#include "syzygy/table.h"

namespace wavefront::syzygy {

// Thread-safe. A file is opened at its first probe. A damaged file is ignored from then on, and reported once
// in the complaints.
class Tablebases {
 public:
  // Lists .rtbw and .rtbz files in the folders, not recursively. The first of two with the same name is used.
  explicit Tablebases(const std::vector<std::filesystem::path>& folders);
  ~Tablebases();
  Tablebases(const Tablebases&) = delete;
  Tablebases& operator=(const Tablebases&) = delete;

  int wdl_tables() const { return wdl_tables_; }
  int dtz_tables() const { return dtz_tables_; }
  // Men of the largest WDL table; 0 without any.
  int most_men() const { return most_men_; }
  // The unreadable folders.
  const std::vector<std::filesystem::path>& missing_folders() const { return missing_folders_; }

  // Returns true if there is a WDL file for a position's material that is not known to be damaged.
  bool may_have(const Position& position) const;
  // Returns a stored value of TableFile; nothing without a table.
  std::optional<Wdl> stored_wdl(const Position& position) const;
  std::optional<TableFile::Distance> stored_distance(const Position& position, Wdl wdl) const;

  // Returns the errors in files since the last call, one sentence each.
  std::vector<std::string> take_complaints() const;

 private:
  class Entry;

  void add_folder(const std::filesystem::path& folder);
  const Entry* find(const Position& position, TableFile::Metric metric) const;
  void complain(const Entry& entry, const std::string& reason) const;

  std::vector<std::unique_ptr<Entry>> entries_;
  // By key of the material, in both colourings.
  std::unordered_map<uint64_t, Entry*> by_material_[2];  // [metric]
  std::vector<std::filesystem::path> missing_folders_;
  int wdl_tables_ = 0;
  int dtz_tables_ = 0;
  int most_men_ = 0;
  mutable std::mutex complaints_mutex_;
  mutable std::vector<std::string> complaints_;
};

}  // namespace wavefront::syzygy
