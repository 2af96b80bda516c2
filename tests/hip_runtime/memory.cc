// SPDX-License-Identifier: GPL-3.0-or-later
// Memory: host memory between guard pages. An address is never used twice, so that what is used after its end
// faults or is found out.
#ifdef _WIN32
#include <windows.h>
#else
#include <sys/mman.h>
#include <unistd.h>
#endif

#include <cstring>

#include "runtime.h"

namespace standin {

namespace {

constexpr std::size_t PAGE = 4096, ALIGNMENT = 256;
constexpr unsigned char PATTERN = 0xA5;
constexpr unsigned char NOT_WRITTEN = 0xFF;  // a NaN in every floating-point format

std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

#ifdef _WIN32
// Views of a file's pages have no guards.
char* map_between_guards(std::size_t bytes, HANDLE file) {
  if (file) return (char*)MapViewOfFile(file, FILE_MAP_WRITE, 0, 0, bytes);
  char* all = (char*)VirtualAlloc(nullptr, bytes + 2 * PAGE, MEM_RESERVE, PAGE_NOACCESS);
  return (char*)VirtualAlloc(all + PAGE, bytes, MEM_COMMIT, PAGE_READWRITE);
}

void unmap(char* pages, std::size_t bytes) {
  DWORD before;
  VirtualProtect(pages, bytes, PAGE_NOACCESS, &before);
}

HANDLE shared_pages(std::size_t bytes) {
  return CreateFileMappingA(INVALID_HANDLE_VALUE, nullptr, PAGE_READWRITE, 0, (DWORD)bytes, nullptr);
}

constexpr HANDLE NO_FILE = nullptr;
#else
constexpr int NO_FILE = -1;

int shared_pages(std::size_t bytes) {
  const int file = memfd_create("standin", 0);
  return file < 0 || ftruncate(file, (off_t)bytes) ? NO_FILE : file;
}

// Reserves `bytes` with an inaccessible page on either side; maps `file` there, or fresh memory.
char* map_between_guards(std::size_t bytes, int file) {
  char* all =
      (char*)mmap(nullptr, bytes + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) return nullptr;
  const int flags = MAP_FIXED | (file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);
  void* pages = mmap(all + PAGE, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
  return pages == MAP_FAILED ? nullptr : (char*)pages;
}

void unmap(char* pages, std::size_t bytes) {
  mmap(pages, bytes, PROT_NONE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}
#endif

// The block ends where its last page does, but for what the alignment leaves.
Block* allocate(std::size_t size, int device) {
  Runtime& r = runtime();
  Block block{};
  const std::size_t used = round_up(size, ALIGNMENT);
  block.size = size;
  block.device = device;
  block.page_bytes = round_up(used, PAGE);
  if (device >= 0) {
    block.pages = block.host_pages = map_between_guards(block.page_bytes, NO_FILE);
  } else {
    // Two views of the same memory: whoever mixes up a host's and a device's address is found out.
    const auto file = shared_pages(block.page_bytes);
    if (file == NO_FILE) return nullptr;
    block.pages = map_between_guards(block.page_bytes, file);
    block.host_pages = map_between_guards(block.page_bytes, file);
#ifndef _WIN32
    close(file);
#endif
  }
  if (!block.pages || !block.host_pages) return nullptr;
  block.address = block.pages + block.page_bytes - used;
  block.host_address = block.host_pages + block.page_bytes - used;
  std::memset(block.pages, PATTERN, block.page_bytes);
  std::memset(block.address, NOT_WRITTEN, size);
  r.blocks.push_back(block);
  Block* kept = &r.blocks.back();
  r.by_address[(uintptr_t)kept->address] = kept;
  r.by_address[(uintptr_t)kept->host_address] = kept;
  return kept;
}

void release(Block& block) {
  check_guards(block);
  block.alive = false;
  unmap(block.pages, block.page_bytes);
  if (block.host_pages != block.pages) unmap(block.host_pages, block.page_bytes);
}

bool is_charged(const Block& block, const Device& device, int index) {
  return block.device == index || (block.device < 0 && device.integrated);
}

int free_block(Call& call, void* address, bool host) {
  Runtime& r = runtime();
  if (!address) return SUCCESS;
  if (const int error = call.refuse_while_capturing()) return error;
  const auto found = r.by_address.find((uintptr_t)address);
  Block* block = found == r.by_address.end() ? nullptr : found->second;
  if (!block || (block->device < 0) != host || (host && address != block->host_address))
    return call.misuse(INVALID_VALUE, "not the start of memory of this kind");
  if (!block->alive) return call.misuse(INVALID_VALUE, "freed twice");
  for (int device = 0; device < (int)r.devices.size(); device++) {
    // Freeing waits for the device, as the real runtime does.
    if (host || block->device == device) finish_device(call.lock(), device);
    if (is_charged(*block, r.devices[device], device)) r.devices[device].used -= block->size;
  }
  release(*block);
  return SUCCESS;
}

enum Kind { HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, DEFAULT };

// Queues a copy. The ranges are checked now and, as memory may be freed in between, when it runs.
int copy(Call& call, Stream* stream, void* to, const void* from, std::size_t bytes, int kind, bool async) {
  if (kind < HOST_TO_HOST || kind > DEFAULT) return call.misuse(INVALID_VALUE, "no such kind of copy");
  const int device = stream->device;
  const bool from_device = kind == DEVICE_TO_HOST || kind == DEVICE_TO_DEVICE;
  const bool to_device = kind == HOST_TO_DEVICE || kind == DEVICE_TO_DEVICE;
  auto wrong = [=]() -> std::string {
    for (const auto& [address, on_device] :
         {std::pair<const void*, bool>{from, from_device}, {to, to_device}}) {
      const Block* block = find_block(address);
      if (!block && !on_device) continue;  // any memory of the host
      const std::string what = wrong_range(address, bytes, on_device ? device : -1);
      if (!what.empty()) return what;
    }
    return "";
  };
  if (const std::string what = wrong(); !what.empty()) return call.misuse(INVALID_VALUE, what);
  if (async && !(find_block(from) && find_block(to)))
    call.misuse(SUCCESS, "memory that is not page-locked: the copy is not asynchronous");
  Operation operation;
  operation.body = [=] {
    {
      Lock lock(runtime().mutex);
      if (const std::string what = wrong(); !what.empty()) {
        runtime().misuse.push_back("a queued copy: " + what);
        return (int)ILLEGAL_ADDRESS;
      }
    }
    std::memmove(to, from, bytes);
    return (int)SUCCESS;
  };
  static const char* const names[] = {"copy", "upload", "download", "copy", "copy"};
  queue(call, stream, operation, names[kind] + (" " + std::to_string(bytes)));
  return SUCCESS;
}

}  // namespace

Block* find_block(const void* address) {
  Runtime& r = runtime();
  auto after = r.by_address.upper_bound((uintptr_t)address);
  if (after == r.by_address.begin()) return nullptr;
  const auto& [start, block] = *--after;
  return (uintptr_t)address < start + block->size ? block : nullptr;
}

std::string wrong_range(const void* address, std::size_t bytes, int device) {
  const Block* block = find_block(address);
  if (!block) return "an address that is nobody's memory";
  if (!block->alive) return "memory that was freed";
  const bool by_host_view =
      (char*)address >= block->host_address && (char*)address < block->host_address + block->size;
  if (device < 0 && block->device >= 0) return "a device's memory used as the host's";
  if (device >= 0 && block->device >= 0 && block->device != device) return "memory of another device";
  if (device >= 0 && block->device < 0 && by_host_view) return "the host's address given to a device";
  if (device < 0 && !by_host_view) return "the device's address of host memory used by the host";
  const std::size_t at = (char*)address - (by_host_view ? block->host_address : block->address);
  if (at + bytes > block->size)
    return std::to_string(bytes) + " bytes from byte " + std::to_string(at) + " of a block of " +
           std::to_string(block->size);
  return "";
}

void check_guards(const Block& block) {
  const unsigned char* end = (unsigned char*)block.pages + block.page_bytes;
  bool intact = true;
  for (auto* p = (unsigned char*)block.pages; p < (unsigned char*)block.address; p++) intact &= *p == PATTERN;
  for (auto* p = (unsigned char*)block.address + block.size; p < end; p++) intact &= *p == PATTERN;
  if (!intact)
    runtime().misuse.push_back("something wrote outside of a block of " + std::to_string(block.size) +
                               " bytes");
}

void forget_memory() {
  Runtime& r = runtime();
  for (Block& block : r.blocks)
    if (block.alive) release(block);
}

}  // namespace standin

using namespace standin;

EXPORT int hipMalloc(void** address, std::size_t size) {
  HIP_CALL("hipMalloc");
  if (const int error = call.refuse_while_capturing()) return error;
  Device& device = runtime().devices[current_device()];
  *address = nullptr;
  if (size == 0) return SUCCESS;
  if (device.used + size > device.memory) return OUT_OF_MEMORY;
  Block* block = allocate(size, current_device());
  if (!block) return OUT_OF_MEMORY;
  device.used += size;
  *address = block->address;
  return SUCCESS;
}

EXPORT int hipFree(void* address) {
  HIP_CALL("hipFree");
  return free_block(call, address, false);
}

EXPORT int hipHostMalloc(void** address, std::size_t size, unsigned) {
  HIP_CALL("hipHostMalloc");
  if (const int error = call.refuse_while_capturing()) return error;
  *address = nullptr;
  if (size == 0) return SUCCESS;
  for (const Device& device : runtime().devices)
    if (device.integrated && device.used + size > device.memory) return OUT_OF_MEMORY;
  Block* block = allocate(size, -1);
  if (!block) return OUT_OF_MEMORY;
  for (Device& device : runtime().devices)
    if (device.integrated) device.used += size;
  *address = block->host_address;
  return SUCCESS;
}

EXPORT int hipHostFree(void* address) {
  HIP_CALL("hipHostFree");
  return free_block(call, address, true);
}

EXPORT int hipHostGetDevicePointer(void** device_address, void* host_address, unsigned flags) {
  HIP_CALL("hipHostGetDevicePointer");
  const Block* block = find_block(host_address);
  if (flags || !block || !block->alive || block->device >= 0)
    return call.misuse(INVALID_VALUE, "not memory of hipHostMalloc");
  *device_address = block->address + ((char*)host_address - block->host_address);
  return SUCCESS;
}

EXPORT int hipMemGetInfo(std::size_t* free, std::size_t* total) {
  HIP_CALL("hipMemGetInfo");
  const Device& device = runtime().devices[current_device()];
  *free = device.memory - device.used;
  *total = device.memory;
  return SUCCESS;
}

EXPORT int hipMemcpy(void* to, const void* from, std::size_t bytes, int kind) {
  HIP_CALL("hipMemcpy");
  if (const int error = call.refuse_while_capturing()) return error;
  Stream* stream = runtime().devices[current_device()].default_stream;
  if (const int error = copy(call, stream, to, from, bytes, kind, false)) return error;
  return finish(call.lock(), stream, stream->queued);
}

EXPORT int hipMemcpyAsync(void* to, const void* from, std::size_t bytes, int kind, void* handle) {
  HIP_CALL("hipMemcpyAsync");
  int error = SUCCESS;
  Stream* stream = find_stream(call, handle, error);
  return stream ? copy(call, stream, to, from, bytes, kind, true) : error;
}

static int set_bytes(Call& call, Stream* stream, void* to, int value, std::size_t bytes) {
  const std::string what = wrong_range(to, bytes, stream->device);
  if (!what.empty()) return call.misuse(INVALID_VALUE, what);
  Operation operation;
  operation.body = [=] {
    std::memset(to, value, bytes);
    return (int)SUCCESS;
  };
  queue(call, stream, operation, "fill " + std::to_string(bytes));
  return SUCCESS;
}

EXPORT int hipMemset(void* to, int value, std::size_t bytes) {
  HIP_CALL("hipMemset");
  if (const int error = call.refuse_while_capturing()) return error;
  Stream* stream = runtime().devices[current_device()].default_stream;
  if (const int error = set_bytes(call, stream, to, value, bytes)) return error;
  return finish(call.lock(), stream, stream->queued);
}

EXPORT int hipMemsetAsync(void* to, int value, std::size_t bytes, void* handle) {
  HIP_CALL("hipMemsetAsync");
  int error = SUCCESS;
  Stream* stream = find_stream(call, handle, error);
  return stream ? set_bytes(call, stream, to, value, bytes) : error;
}
