// SPDX-License-Identifier: GPL-3.0-or-later
// The tables of some folders: which there are, and their values.
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

// For any number of threads. A file is opened when a position first asks for it; one that is damaged is left
// out from then on, as if it were not there, and named in the complaints once.
class Tablebases {
 public:
  // Looks for .rtbw and .rtbz files in the folders, not below them; of two with one name the first counts.
  explicit Tablebases(const std::vector<std::filesystem::path>& folders);
  ~Tablebases();
  Tablebases(const Tablebases&) = delete;
  Tablebases& operator=(const Tablebases&) = delete;

  int wdl_tables() const { return wdl_tables_; }
  int dtz_tables() const { return dtz_tables_; }
  // Men of the largest WDL table; 0 without any.
  int most_men() const { return most_men_; }
  // The folders that cannot be read.
  const std::vector<std::filesystem::path>& missing_folders() const { return missing_folders_; }

  // Whether there is a file with the values of a position's material, and it was not found to be damaged.
  bool may_have(const Position& position) const;
  // A stored value, as TableFile has it; nothing if there is no table for it.
  std::optional<Wdl> stored_wdl(const Position& position) const;
  std::optional<TableFile::Distance> stored_distance(const Position& position, Wdl wdl) const;

  // What was found to be wrong with files since this was last asked, one sentence each.
  std::vector<std::string> take_complaints() const;

 private:
  class Entry;

  void add_folder(const std::filesystem::path& folder);
  const Entry* find(const Position& position, TableFile::Metric metric) const;
  void complain(const Entry& entry, const std::string& reason) const;

  std::vector<std::unique_ptr<Entry>> entries_;
  // By the key of the material, in both colourings.
  std::unordered_map<uint64_t, Entry*> by_material_[2];  // [metric]
  std::vector<std::filesystem::path> missing_folders_;
  int wdl_tables_ = 0;
  int dtz_tables_ = 0;
  int most_men_ = 0;
  mutable std::mutex complaints_mutex_;
  mutable std::vector<std::string> complaints_;
};

}  // namespace wavefront::syzygy
