// SPDX-License-Identifier: GPL-3.0-or-later
// The runtime's state, its configuration, and what tests see of it.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "runtime.h"

namespace standin {

namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

const char* environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value ? value : otherwise;
}

// STANDIN_ABORT names a call that ends the process, as ROCm does at an illegal access.
void abort_if_asked(const char* name) {
  if (environment("STANDIN_ABORT", "") != std::string(name)) return;
  std::fprintf(stderr, "Memory access fault by GPU node-1 on address 0x7f0000000000 (%s)\n", name);
#ifdef _WIN32
  *(volatile int*)8 = 0;
#endif
  std::abort();
}

bool parse_devices(const std::string& text, std::vector<Device>& devices) {
  for (const std::string& entry : split(text, ';')) {
    Device device;
    for (const std::string& part : split(entry, ',')) {
      const std::size_t equals = part.find('=');
      const std::string key = part.substr(0, equals),
                        value = equals == part.npos ? "" : part.substr(equals + 1);
      if (equals == part.npos)
        device.target = part;
      else if (key == "name")
        device.name = value;
      else if (key == "memory_mb")
        device.memory = std::strtoull(value.c_str(), nullptr, 10) << 20;
      else if (key == "processors")
        device.processors = std::atoi(value.c_str());
      else if (key == "clock_mhz")
        device.clock_mhz = std::atoi(value.c_str());
      else if (key == "integrated")
        device.integrated = value == "1";
      else if (key == "pci")
        device.pci = value;
      else
        return false;
    }
    if (device.target.empty()) return false;
    if (device.name.empty()) device.name = "Stand-in " + device.target.substr(0, device.target.find(':'));
    if (device.pci.empty()) device.pci = "0000:0" + std::to_string(devices.size() % 10) + ":00.0";
    devices.push_back(device);
  }
  return true;
}

void set_order(const std::string& order) {
  Runtime& r = runtime();
  r.order = order == "lazy"    ? Runtime::Order::LAZY
            : order == "eager" ? Runtime::Order::EAGER
                               : Runtime::Order::RANDOM;
  r.random.seed((unsigned)std::atoi(order.c_str()));
}

bool reset(const std::string& text) {
  std::vector<Device> devices;
  if (!parse_devices(text, devices)) return false;
  Runtime& r = runtime();
  forget_memory();
  r.devices = devices;
  for (auto& stream : r.streams) {
    stream.alive = false;
    stream.queue.clear();
    stream.capture = nullptr;
  }
  for (auto& capture : r.captures) capture.origin = nullptr;
  for (auto& event : r.events) event.alive = false;
  for (auto& graph : r.graphs) graph.alive = false;
  for (auto& graph : r.executables) graph.alive = false;
  for (auto& module : r.modules) module.alive = false;
  for (std::size_t i = 0; i < devices.size(); i++) r.devices[i].default_stream = new_stream((int)i);
  r.failures.clear();
  r.calls.clear();
  r.launches.clear();
  r.misuse.clear();
  r.trace.clear();
  r.held = false;
  r.machine++;
  return true;
}

void write_report();

void configure_from_environment() {
  Runtime& r = runtime();
  if (!reset(environment("STANDIN_DEVICES", "gfx1100"))) {
    std::fprintf(stderr, "STANDIN_DEVICES: cannot read '%s'\n", std::getenv("STANDIN_DEVICES"));
    std::abort();
  }
  r.version = std::atoi(environment("STANDIN_VERSION", "71500000"));
  set_order(environment("STANDIN_ORDER", "lazy"));
  for (const std::string& entry : split(environment("STANDIN_FAIL", ""), ';')) {
    const std::vector<std::string> parts = split(entry, ':');
    if (parts.size() == 4)
      r.failures.push_back({parts[0], std::stoi(parts[1]), std::stoi(parts[2]), std::stoi(parts[3])});
  }
  if (std::getenv("STANDIN_REPORT")) std::atexit(write_report);
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c < ' ' ? ' ' : c;
  }
  return result + '"';
}

template <class T>
std::string counts(const T& map) {
  std::string result = "{";
  for (const auto& [name, count] : map)
    result += (result.size() > 1 ? ", " : "") + quoted(name) + ": " + std::to_string(count);
  return result + "}";
}

std::string list(const std::vector<std::string>& all) {
  std::string result = "[";
  for (const std::string& each : all) result += (result.size() > 1 ? ", " : "") + quoted(each);
  return result + "]";
}

std::string report() {
  Runtime& r = runtime();
  for (const Block& block : r.blocks)
    if (block.alive) check_guards(block);
  std::map<std::string, int> alive;
  for (const Block& block : r.blocks)
    if (block.alive) alive[block.device < 0 ? "host memory" : "device memory"]++;
  for (const Stream& stream : r.streams) alive["stream"] += stream.alive;
  alive["stream"] -= (int)r.devices.size();
  for (const Event& event : r.events) alive["event"] += event.alive;
  for (const Graph& graph : r.graphs) alive["graph"] += graph.alive;
  for (const Graph& graph : r.executables) alive["executable graph"] += graph.alive;
  for (const Module& module : r.modules) alive["module"] += module.alive;
  alive["program"] = r.programs;
  std::erase_if(alive, [](const auto& each) { return each.second == 0; });
  std::string used = "[";
  for (const Device& device : r.devices) used += (used.size() > 1 ? ", " : "") + std::to_string(device.used);
  return "{\"alive\": " + counts(alive) + ", \"used\": " + used + "], \"misuse\": " + list(r.misuse) +
         ", \"calls\": " + counts(r.calls) + ", \"launches\": " + counts(r.launches) +
         ", \"trace\": " + list(r.trace) + "}";
}

void write_report() {
  Lock lock(runtime().mutex);
  std::ofstream(std::getenv("STANDIN_REPORT")) << report();
}

}  // namespace

Runtime& runtime() {
  static auto* r = new Runtime;  // never deleted: threads may still wait while the process ends
  return *r;
}

__attribute__((constructor)) static void start() {
  configure_from_environment();
}

int& current_device() {
  thread_local int device = 0, of_machine = 0;
  if (of_machine != runtime().machine) {
    of_machine = runtime().machine;
    device = 0;
  }
  return device;
}

double now_ms() {
  using namespace std::chrono;
  return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

int injected(const char* function) {
  for (Failure& failure : runtime().failures)
    if (failure.function == function && --failure.nth <= 0 && failure.nth > -failure.times)
      return failure.error;
  return SUCCESS;
}

Call::Call(const char* name, bool checks_device) : name_(name), lock_(runtime().mutex) {
  abort_if_asked(name);
  Runtime& r = runtime();
  r.calls[name]++;
  const int device = current_device();
  if (device >= (int)r.devices.size())
    error_ = r.devices.empty() ? NO_DEVICE : INVALID_DEVICE;
  else if (checks_device)
    error_ = r.devices[device].fault;
  injected_ = injected(name);
  if (injected_) error_ = injected_;
}

int Call::misuse(int error, const std::string& what) {
  runtime().misuse.push_back(std::string(name_) + ": " + what);
  return error;
}

int Call::refuse_while_capturing() {
  for (Capture& capture : runtime().captures)
    if (capture.origin && capture.thread == std::this_thread::get_id()) {
      capture.broken = true;
      return misuse(CAPTURE_UNSUPPORTED, "not allowed while this thread captures");
    }
  return SUCCESS;
}

standin_strategy strategy() {
  standin_strategy result = runtime().strategy;
  const standin_strategy& fibers = fiber_strategy();
  if (!result.compile) result.compile = fibers.compile;
  if (!result.load) result.load = fibers.load;
  if (!result.function) result.function = fibers.function;
  if (!result.launch) result.launch = fibers.launch;
  if (!result.unload) result.unload = fibers.unload;
  return result;
}

}  // namespace standin

using namespace standin;

EXPORT void standin_set_strategy(const standin_strategy* chosen) {
  Lock lock(runtime().mutex);
  runtime().strategy = chosen ? *chosen : standin_strategy{};
}

EXPORT int standin_reset(const char* devices) {
  Lock lock(runtime().mutex);
  return reset(devices) ? 0 : 1;
}

EXPORT void standin_set_version(int version) {
  Lock lock(runtime().mutex);
  runtime().version = version;
}

EXPORT void standin_fail(const char* function, int nth, int times, int error) {
  Lock lock(runtime().mutex);
  runtime().failures.push_back({function, nth, times, error});
}

EXPORT void standin_set_order(const char* order) {
  Lock lock(runtime().mutex);
  set_order(order);
}

EXPORT void standin_hold(int held) {
  Lock lock(runtime().mutex);
  runtime().held = held;
  runtime().changed.notify_all();
}

EXPORT int standin_await_waiting(int threads, int timeout_ms) {
  Runtime& r = runtime();
  Lock lock(r.mutex);
  return r.changed.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                            [&] { return r.waiting >= threads; });
}

EXPORT const char* standin_report() {
  static std::string text;
  Lock lock(runtime().mutex);
  text = report();
  return text.c_str();
}

EXPORT void standin_deliver(void* result, const void* code, std::size_t bytes, const char* log) {
  auto* delivered = (Delivered*)result;
  delivered->code.assign((const char*)code, (const char*)code + bytes);
  delivered->log = log ? log : "";
}

EXPORT int standin_injected(const char* function) {
  Lock lock(runtime().mutex);
  runtime().calls[function]++;
  return injected(function);
}

EXPORT void standin_count_programs(int more) {
  Lock lock(runtime().mutex);
  runtime().programs += more;
}

EXPORT void standin_current_strategy(standin_strategy* result) {
  Lock lock(runtime().mutex);
  *result = strategy();
}
