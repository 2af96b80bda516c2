// SPDX-License-Identifier: GPL-3.0-or-later
#include "syzygy/tablebases.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace wavefront::syzygy {
namespace {

std::string text_of(const std::filesystem::path& path) {
  const auto utf8 = path.u8string();
  return {utf8.begin(), utf8.end()};
}

}  // namespace

// A file, opened or not.
class Tablebases::Entry {
 public:
  Entry(std::filesystem::path path, const Material& material, TableFile::Metric metric)
      : path_(std::move(path)), material_(material), metric_(metric) {}

  const std::filesystem::path& path() const { return path_; }

  // Returns the opened file; null if it is unusable. on_failure: called with the reason if opening fails.
  template <typename OnFailure>
  const TableFile* opened(OnFailure on_failure) const {
    std::call_once(once_, [&] {
      try {
        file_ = std::make_unique<TableFile>(path_, material_, metric_);
      } catch (const std::exception& error) {
        given_up_ = true;
        on_failure(error.what());
      }
    });
    return given_up_ ? nullptr : file_.get();
  }
  // Excludes the file from now on, while other threads may still read it. Returns true the first time.
  bool give_up() const { return !given_up_.exchange(true); }
  bool given_up() const { return given_up_; }

 private:
  std::filesystem::path path_;
  Material material_;
  TableFile::Metric metric_;
  mutable std::once_flag once_;
  mutable std::unique_ptr<TableFile> file_;
  mutable std::atomic<bool> given_up_{false};
};

Tablebases::Tablebases(const std::vector<std::filesystem::path>& folders) {
  for (const auto& folder : folders) add_folder(folder);
}

Tablebases::~Tablebases() = default;

void Tablebases::add_folder(const std::filesystem::path& folder) {
  std::error_code failure;
  std::filesystem::directory_iterator files(folder, failure);
  if (failure) {
    missing_folders_.push_back(folder);
    return;
  }
  for (; !failure && files != std::filesystem::directory_iterator(); files.increment(failure)) {
    const auto& path = files->path();
    const auto extension = path.extension();
    if (extension != ".rtbw" && extension != ".rtbz") continue;
    const std::optional<Material> material = Material::from_name(text_of(path.stem()));
    if (!material || material->men() < 3) continue;
    const auto metric = extension == ".rtbw" ? TableFile::Metric::kWdl : TableFile::Metric::kDtz;
    auto& known = by_material_[static_cast<size_t>(metric)];
    if (known.contains(material->key())) continue;
    entries_.push_back(std::make_unique<Entry>(path, *material, metric));
    known[material->key()] = known[material->swapped().key()] = entries_.back().get();
    if (metric == TableFile::Metric::kWdl) {
      ++wdl_tables_;
      most_men_ = std::max(most_men_, material->men());
    } else {
      ++dtz_tables_;
    }
  }
}

const Tablebases::Entry* Tablebases::find(const Position& position, TableFile::Metric metric) const {
  const auto& known = by_material_[static_cast<size_t>(metric)];
  const auto found = known.find(Material::of(position).key());
  return found == known.end() ? nullptr : found->second;
}

void Tablebases::complain(const Entry& entry, const std::string& reason) const {
  std::lock_guard lock(complaints_mutex_);
  complaints_.push_back("tablebase " + text_of(entry.path()) + " is not used: " + reason);
}

bool Tablebases::may_have(const Position& position) const {
  const Entry* entry = find(position, TableFile::Metric::kWdl);
  return entry != nullptr && !entry->given_up();
}

std::optional<Wdl> Tablebases::stored_wdl(const Position& position) const {
  const Entry* entry = find(position, TableFile::Metric::kWdl);
  if (entry == nullptr) return std::nullopt;
  const TableFile* file = entry->opened([&](const std::string& reason) { complain(*entry, reason); });
  if (file == nullptr) return std::nullopt;
  const std::optional<Wdl> wdl = file->wdl(position);
  if (!wdl && entry->give_up()) complain(*entry, "its data is damaged");
  return wdl;
}

std::optional<TableFile::Distance> Tablebases::stored_distance(const Position& position, Wdl wdl) const {
  const Entry* entry = find(position, TableFile::Metric::kDtz);
  if (entry == nullptr) return std::nullopt;
  const TableFile* file = entry->opened([&](const std::string& reason) { complain(*entry, reason); });
  if (file == nullptr) return std::nullopt;
  const auto distance = file->distance(position, wdl);
  if (!distance && entry->give_up()) complain(*entry, "its data is damaged");
  return distance;
}

std::vector<std::string> Tablebases::take_complaints() const {
  std::lock_guard lock(complaints_mutex_);
  return std::exchange(complaints_, {});
}

}  // namespace wavefront::syzygy
