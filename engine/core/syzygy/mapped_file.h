// SPDX-License-Identifier: GPL-3.0-or-later
// A file mapped as read-only memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace wavefront::syzygy {

// The system loads pages on first access, and may discard them again. So tables may exceed the memory. The
// file must not be truncated while it is mapped.
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
