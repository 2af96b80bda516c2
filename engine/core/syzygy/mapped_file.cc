// SPDX-License-Identifier: GPL-3.0-or-later
#include "syzygy/mapped_file.h"

#include <stdexcept>
#include <system_error>

#ifdef _WIN32
#define NOMINMAX
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#else
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#endif

namespace wavefront::syzygy {

#ifdef _WIN32

namespace {

[[noreturn]] void fail() {
  throw std::runtime_error(std::system_category().message(static_cast<int>(GetLastError())));
}

// Closes a system handle. The mapping needs neither the file nor the section object afterwards.
struct Handle {
  HANDLE handle;
  ~Handle() {
    if (handle != nullptr && handle != INVALID_HANDLE_VALUE) CloseHandle(handle);
  }
};

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  const Handle file{CreateFileW(path.c_str(), GENERIC_READ, FILE_SHARE_READ, nullptr, OPEN_EXISTING,
                                FILE_FLAG_RANDOM_ACCESS, nullptr)};
  if (file.handle == INVALID_HANDLE_VALUE) fail();
  LARGE_INTEGER size;
  if (!GetFileSizeEx(file.handle, &size)) fail();
  if (size.QuadPart == 0) return;
  const Handle section{CreateFileMappingW(file.handle, nullptr, PAGE_READONLY, 0, 0, nullptr)};
  if (section.handle == nullptr) fail();
  data_ = static_cast<const uint8_t*>(MapViewOfFile(section.handle, FILE_MAP_READ, 0, 0, 0));
  if (data_ == nullptr) fail();
  size_ = static_cast<size_t>(size.QuadPart);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) UnmapViewOfFile(data_);
}

#else

namespace {

[[noreturn]] void fail() {
  throw std::runtime_error(std::generic_category().message(errno));
}

struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0) close(number);
  }
};

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a pipe of that name would block.
  const Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.number < 0) fail();
  struct stat status;
  if (fstat(file.number, &status) != 0) fail();
  if (!S_ISREG(status.st_mode)) throw std::runtime_error("not a file");
  if (status.st_size == 0) return;
  size_ = static_cast<size_t>(status.st_size);
  void* mapped = mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.number, 0);
  if (mapped == MAP_FAILED) fail();
  madvise(mapped, size_, MADV_RANDOM);  // probes are random, so read-ahead would be useless
  data_ = static_cast<const uint8_t*>(mapped);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<uint8_t*>(data_), size_);
}

#endif

}  // namespace wavefront::syzygy
