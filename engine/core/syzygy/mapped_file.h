// SPDX-License-Identifier: GPL-3.0-or-later
// A file as read-only memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace wavefront::syzygy {

// The pages are read from the disk when they are first touched, and may be dropped again: a folder of tables
// larger than the memory is as good as a small one. The file must not be cut short while it is mapped.
class MappedFile {
 public:
  // Throws std::runtime_error, with the system's reason, if the file cannot be read.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const uint8_t> bytes() const { return {data_, size_}; }

 private:
  const uint8_t* data_ = nullptr;  // null for an empty file, which cannot be mapped
  size_t size_ = 0;
};

}  // namespace wavefront::syzygy
