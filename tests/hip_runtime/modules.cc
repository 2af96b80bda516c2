// SPDX-License-Identifier: GPL-3.0-or-later
// Devices, modules, launches and graphs.
#include <setjmp.h>
#include <signal.h>

#include <cstdio>
#include <cstring>

#include "runtime.h"

namespace standin {

namespace {

#ifdef _WIN32
int run_kernel(standin_launch launch, void* function, const std::string&, const unsigned* grid,
               const unsigned* block, unsigned shared_bytes, const std::vector<char>& arguments) {
  return launch(function, grid, block, shared_bytes, arguments.data(), arguments.size());
}
#else
// --- kernels that touch what is not theirs

sigjmp_buf before_launch;
void* fault_address;

void on_fault(int, siginfo_t* info, void*) {
  fault_address = info->si_addr;
  siglongjmp(before_launch, 1);
}

// Runs a kernel; a fault ends it, not the process.
int run_kernel(standin_launch launch, void* function, const std::string& name, const unsigned* grid,
               const unsigned* block, unsigned shared_bytes, const std::vector<char>& arguments) {
  struct sigaction ours{}, segv{}, bus{};
  ours.sa_sigaction = on_fault;
  ours.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &ours, &segv);
  sigaction(SIGBUS, &ours, &bus);
  int error = ILLEGAL_ADDRESS;
  const bool faulted = sigsetjmp(before_launch, 1);
  if (!faulted) error = launch(function, grid, block, shared_bytes, arguments.data(), arguments.size());
  sigaction(SIGSEGV, &segv, nullptr);
  sigaction(SIGBUS, &bus, nullptr);
  if (faulted) {
    Lock lock(runtime().mutex);
    // The block that ends before the address or begins behind it.
    std::string where = "nobody's memory";
    for (const Block& each : runtime().blocks)
      for (const char* start : {each.address, each.host_address}) {
        const long at = (const char*)fault_address - start;
        if (at > -8192 && at < (long)each.size + 8192)
          where = "byte " + std::to_string(at) + " of a block of " + std::to_string(each.size) +
                  (each.alive ? "" : ", which was freed");
      }
    runtime().misuse.push_back("kernel " + name + " touched " + where);
  }
  return error;
}
#endif

// What is wrong with addresses among a kernel's arguments, or "".
std::string wrong_arguments(const std::vector<char>& arguments, int device) {
  for (std::size_t at = 0; at + 8 <= arguments.size(); at += 8) {
    void* address;
    std::memcpy(&address, arguments.data() + at, 8);
    if (!find_block(address)) continue;  // a number, or two
    const std::string what = wrong_range(address, 0, device);
    if (!what.empty()) return "at byte " + std::to_string(at) + " of its arguments: " + what;
  }
  return "";
}

std::size_t elf_bytes(const unsigned char* image) {
  if (std::memcmp(image, "\177ELF\2", 5) != 0) return 0;
  uint64_t sections_at;
  uint16_t section_bytes, sections;
  std::memcpy(&sections_at, image + 40, 8);
  std::memcpy(&section_bytes, image + 58, 2);
  std::memcpy(&sections, image + 60, 2);
  return sections_at + (std::size_t)section_bytes * sections;
}

Graph* find_graph(Call& call, std::deque<Graph>& all, void* handle, int& error) {
  Graph* graph = find_handle(all, handle);
  if (!graph || !graph->alive) {
    error = call.misuse(INVALID_HANDLE, graph ? "a graph that was destroyed" : "not a graph");
    return nullptr;
  }
  return graph;
}

// Offsets in hipDeviceProp_tR0600, which is the same since ROCm 6.
struct Properties {
  char* at;
  void text(int offset, const std::string& value) {
    std::memcpy(at + offset, value.c_str(), value.size() + 1);
  }
  void number(int offset, int value) { std::memcpy(at + offset, &value, sizeof value); }
  void bytes(int offset, std::size_t value) { std::memcpy(at + offset, &value, sizeof value); }
};

}  // namespace

int run_graph(const std::vector<Node>& nodes) {
  Runtime& r = runtime();
  std::vector<bool> done(nodes.size());
  for (std::size_t count = 0; count < nodes.size(); count++) {
    std::vector<int> able;
    for (int i = 0; i < (int)nodes.size(); i++) {
      bool ready = !done[i];
      for (int before : nodes[i].after) ready = ready && done[before];
      if (ready) able.push_back(i);
    }
    int next = able.back();
    {
      Lock lock(r.mutex);
      if (r.order == Runtime::Order::EAGER) next = able.front();
      if (r.order == Runtime::Order::RANDOM) next = able[r.random() % able.size()];
    }
    if (const int error = nodes[next].body()) return error;
    done[next] = true;
  }
  return SUCCESS;
}

}  // namespace standin

using namespace standin;

// --- devices

EXPORT int hipInit(unsigned) {
  HIP_CALL("hipInit");
  return SUCCESS;
}

EXPORT int hipGetDeviceCount(int* count) {
  HIP_CALL("hipGetDeviceCount", false);
  *count = (int)runtime().devices.size();
  return SUCCESS;
}

EXPORT int hipSetDevice(int device) {
  Call call("hipSetDevice", false);
  if (call.injected_error()) return call.injected_error();
  if (device < 0 || device >= (int)runtime().devices.size()) return INVALID_DEVICE;
  current_device() = device;
  return SUCCESS;
}

EXPORT int hipGetDevice(int* device) {
  HIP_CALL("hipGetDevice", false);
  *device = current_device();
  return SUCCESS;
}

EXPORT int hipRuntimeGetVersion(int* version) {
  HIP_CALL("hipRuntimeGetVersion", false);
  *version = runtime().version;
  return SUCCESS;
}

EXPORT int hipDriverGetVersion(int* version) {
  HIP_CALL("hipDriverGetVersion", false);
  *version = runtime().version;
  return SUCCESS;
}

EXPORT int hipGetDevicePropertiesR0600(void* result, int index) {
  HIP_CALL("hipGetDeviceProperties", false);
  if (index < 0 || index >= (int)runtime().devices.size()) return INVALID_DEVICE;
  const Device& device = runtime().devices[index];
  constexpr std::size_t BYTES = 1472;
  std::memset(result, 0, BYTES);
  Properties properties{(char*)result};
  properties.text(0, device.name);
  properties.bytes(288, device.memory);                                   // totalGlobalMem
  properties.bytes(296, 64 << 10);                                        // sharedMemPerBlock
  properties.number(308, device.target.rfind("gfx9", 0) == 0 ? 64 : 32);  // warpSize
  properties.number(320, 1024);                                           // maxThreadsPerBlock
  properties.number(348, device.clock_mhz * 1000);                        // clockRate
  properties.number(388, device.processors);                              // multiProcessorCount
  properties.number(396, device.integrated);
  properties.number(400, 1);             // canMapHostMemory
  properties.text(1160, device.target);  // gcnArchName
  return SUCCESS;
}

EXPORT int hipDeviceGetPCIBusId(char* text, int bytes, int index) {
  HIP_CALL("hipDeviceGetPCIBusId", false);
  if (index < 0 || index >= (int)runtime().devices.size()) return INVALID_DEVICE;
  std::snprintf(text, bytes, "%s", runtime().devices[index].pci.c_str());
  return SUCCESS;
}

EXPORT const char* hipGetErrorName(int) {
  return "hipErrorUnknown";
}
EXPORT const char* hipGetErrorString(int) {
  return "an error of the stand-in runtime";
}
EXPORT int hipGetLastError() {
  return SUCCESS;
}

// --- modules

EXPORT int hipModuleLoadData(void** handle, const void* image) {
  HIP_CALL("hipModuleLoadData");
  if (const int error = call.refuse_while_capturing()) return error;
  *handle = nullptr;
  const std::size_t bytes = elf_bytes((const unsigned char*)image);
  if (bytes == 0) return INVALID_IMAGE;
  const int device = current_device();
  const std::string target = runtime().devices[device].target;
  const standin_load load = strategy().load;
  void* loaded = nullptr;
  // Two threads that load can deadlock in ROCm 7.2 (ROCm/legacy-rocm-build #6577).
  if (runtime().loading++) call.misuse(SUCCESS, "another thread loads code, too");
  call.lock().unlock();
  const int error = load(image, bytes, target.substr(0, target.find(':')).c_str(), &loaded);
  call.lock().lock();
  runtime().loading--;
  if (error) return error;
  runtime().modules.push_back(Module{.handle = loaded, .device = device});
  *handle = &runtime().modules.back();
  return SUCCESS;
}

EXPORT int hipModuleGetFunction(void** handle, void* module_handle, const char* name) {
  HIP_CALL("hipModuleGetFunction");
  *handle = nullptr;
  Module* module = find_handle(runtime().modules, module_handle);
  if (!module || !module->alive) return call.misuse(INVALID_HANDLE, "not a module, or unloaded");
  void* found = nullptr;
  const standin_function function = strategy().function;
  call.lock().unlock();
  const int error = function(module->handle, name, &found);
  call.lock().lock();
  if (error) return error;
  runtime().functions.push_back({module, found, name});
  *handle = &runtime().functions.back();
  return SUCCESS;
}

EXPORT int hipModuleUnload(void* handle) {
  HIP_CALL("hipModuleUnload", false);
  Module* module = find_handle(runtime().modules, handle);
  if (!module || !module->alive) return call.misuse(INVALID_HANDLE, "not a module, or unloaded already");
  finish_device(call.lock(), module->device);
  module->alive = false;
  strategy().unload(module->handle);
  return SUCCESS;
}

EXPORT int hipModuleLaunchKernel(void* handle, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                 unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                 void* stream_handle, void** parameters, void** extra) {
  HIP_CALL("hipModuleLaunchKernel");
  int error = SUCCESS;
  Stream* stream = find_stream(call, stream_handle, error);
  if (!stream) return error;
  Function* function = find_handle(runtime().functions, handle);
  if (!function || !function->module->alive)
    return call.misuse(INVALID_HANDLE, function ? "a kernel that was unloaded" : "not a kernel");
  if (function->module->device != stream->device)
    return call.misuse(INVALID_HANDLE, "a kernel of another device");
  if (parameters || !extra) return call.misuse(INVALID_VALUE, "arguments are taken packed only (`extra`)");
  const std::array<unsigned, 3> grid{grid_x, grid_y, grid_z}, block{block_x, block_y, block_z};
  if (!grid_x || !grid_y || !grid_z || grid_y > 65535 || grid_z > 65535 || !block_x || !block_y || !block_z ||
      block_x * block_y * block_z > 1024 || shared_bytes > 64 << 10)
    return call.misuse(INVALID_CONFIGURATION,
                       function->name + " with an impossible grid, block or shared memory");
  constexpr uintptr_t POINTER = 1, SIZE = 2, END = 3;  // HIP_LAUNCH_PARAM_*
  const char* buffer = nullptr;
  std::size_t bytes = 0;
  for (; (uintptr_t)*extra != END; extra += 2) {
    if ((uintptr_t)*extra == POINTER) buffer = (const char*)extra[1];
    if ((uintptr_t)*extra == SIZE) bytes = *(const std::size_t*)extra[1];
  }
  const std::vector<char> arguments(buffer, buffer + bytes);
  if (const std::string what = wrong_arguments(arguments, stream->device); !what.empty())
    return call.misuse(INVALID_VALUE, function->name + ": " + what);
  Operation operation;
  operation.body = [=, device = stream->device] {
    standin_launch launch;
    {
      Lock lock(runtime().mutex);
      runtime().launches[function->name]++;
      if (const int failure = injected("launch")) return failure;
      const std::string what =
          function->module->alive ? wrong_arguments(arguments, device) : "it was unloaded";
      if (!what.empty()) {
        runtime().misuse.push_back("kernel " + function->name + ": " + what);
        return (int)ILLEGAL_ADDRESS;
      }
      launch = strategy().launch;
    }
    return run_kernel(launch, function->handle, function->name, grid.data(), block.data(), shared_bytes,
                      arguments);
  };
  queue(call, stream, operation, "launch " + function->name);
  return SUCCESS;
}

// --- graphs

EXPORT int hipGraphInstantiateWithFlags(void** executable, void* handle, unsigned long long) {
  HIP_CALL("hipGraphInstantiateWithFlags");
  *executable = nullptr;
  int error = SUCCESS;
  const Graph* graph = find_graph(call, runtime().graphs, handle, error);
  if (!graph) return error;
  runtime().executables.push_back(*graph);
  *executable = &runtime().executables.back();
  return SUCCESS;
}

EXPORT int hipGraphLaunch(void* handle, void* stream_handle) {
  HIP_CALL("hipGraphLaunch");
  int error = SUCCESS;
  Stream* stream = find_stream(call, stream_handle, error);
  if (!stream) return error;
  const Graph* graph = find_graph(call, runtime().executables, handle, error);
  if (!graph) return error;
  if (graph->device != stream->device) return call.misuse(INVALID_HANDLE, "a graph of another device");
  if (stream->capture) return call.misuse(CAPTURE_UNSUPPORTED, "a graph in a graph");
  Operation operation;
  operation.body = [graph] { return run_graph(graph->nodes); };
  queue(call, stream, operation, "graph " + std::to_string(graph->nodes.size()));
  return SUCCESS;
}

EXPORT int hipGraphDestroy(void* handle) {
  HIP_CALL("hipGraphDestroy", false);
  int error = SUCCESS;
  Graph* graph = find_graph(call, runtime().graphs, handle, error);
  if (graph) graph->alive = false;
  return error;
}

EXPORT int hipGraphExecDestroy(void* handle) {
  HIP_CALL("hipGraphExecDestroy", false);
  int error = SUCCESS;
  Graph* graph = find_graph(call, runtime().executables, handle, error);
  if (!graph) return error;
  finish_device(call.lock(), graph->device);
  graph->alive = false;
  graph->nodes.clear();
  return SUCCESS;
}
