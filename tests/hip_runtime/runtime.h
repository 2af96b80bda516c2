// SPDX-License-Identifier: GPL-3.0-or-later
// What the stand-in runtime is made of. See standin.h for what it is for.
//
// One mutex guards everything here. It is given up while an operation runs; only one runs at a time.
#pragma once
#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "standin.h"

namespace standin {

enum Error : int {
  SUCCESS = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  INVALID_CONFIGURATION = 9,
  NO_DEVICE = 100,
  INVALID_DEVICE = 101,
  INVALID_IMAGE = 200,
  NO_BINARY_FOR_GPU = 209,
  INVALID_HANDLE = 400,
  ILLEGAL_STATE = 401,
  NOT_FOUND = 500,
  NOT_READY = 600,
  ILLEGAL_ADDRESS = 700,
  LAUNCH_FAILURE = 719,
  CAPTURE_UNSUPPORTED = 900,
  CAPTURE_INVALIDATED = 901,
  CAPTURE_UNMATCHED = 903,
  CAPTURE_UNJOINED = 904,
  CAPTURED_EVENT = 907,
  CAPTURE_WRONG_THREAD = 908,
};

struct Stream;
struct Capture;

// A point in a stream. Outlives the event that it was recorded for.
struct Marker {
  Stream* stream;
  uint64_t ticket;
  bool done = false;
  double milliseconds = 0;
};
using MarkerRef = std::shared_ptr<Marker>;

// Returns 0 or an error that ends the device.
using Body = std::function<int()>;

struct Operation {
  Body body{};
  MarkerRef waits_for{}, marks{};
  uint64_t number = 0;  // in the order queued, over all streams
};

struct Stream {
  int device;
  bool alive = true;
  std::deque<Operation> queue{};
  uint64_t queued = 0, completed = 0;
  Capture* capture = nullptr;
  int number = 0;  // for traces
};

struct Event {
  int device;
  bool timing;
  bool alive = true;
  MarkerRef recorded{};
  bool asked = false;  // whether it has happened, since it was recorded
  Capture* capture = nullptr;
  std::set<int> captured_after{};
};

struct Node {
  Body body{};
  std::set<int> after{};
};

struct Graph {
  std::vector<Node> nodes{};
  int device = 0;
  bool alive = true;
};

struct Capture {
  Stream* origin;
  std::thread::id thread;
  std::map<Stream*, std::set<int>> ends{};  // of every stream that takes part
  std::vector<Node> nodes{};
  bool broken = false;
};

struct Module {
  void* handle;
  int device;
  bool alive = true;
};

struct Function {
  Module* module;
  void* handle;
  std::string name;
};

// device: -1 for page-locked host memory, which has a second address for devices.
struct Block {
  char* address;
  char* host_address;
  std::size_t size;
  int device;
  bool alive = true;
  char *pages, *host_pages;
  std::size_t page_bytes;
};

struct Device {
  std::string target, name, pci;
  std::size_t memory = std::size_t(8) << 30, used = 0;
  int processors = 16;
  bool integrated = false;
  int clock_mhz = 0;
  int fault = 0;
  Stream* default_stream = nullptr;
};

// What a compiler made.
struct Delivered {
  std::vector<char> code;
  std::string log;
};

struct Failure {
  std::string function;
  int nth, times, error;
};

struct Runtime {
  std::mutex mutex;
  std::condition_variable changed;

  std::vector<Device> devices;
  int version = 71500000;
  standin_strategy strategy{};

  // Handles are never freed, so that one that is used after its end is known as such.
  std::deque<Stream> streams;
  std::deque<Event> events;
  std::deque<Graph> graphs, executables;
  std::deque<Module> modules;
  std::deque<Function> functions;
  std::map<uintptr_t, Block*> by_address;  // by each of a block's two addresses
  std::deque<Block> blocks;
  std::deque<Capture> captures;

  std::vector<Failure> failures;
  std::map<std::string, int> calls, launches;
  int programs = 0;
  int loading = 0;  // threads in hipModuleLoadData
  std::vector<std::string> misuse, trace;

  enum class Order { LAZY, EAGER, RANDOM } order = Order::LAZY;
  std::mt19937 random;
  uint64_t operations = 0;
  bool held = false, running = false;
  int waiting = 0;
  int machine = 0;  // counts resets: threads begin with device 0 again
};

Runtime& runtime();
using Lock = std::unique_lock<std::mutex>;

// The device that the calling thread has set.
int& current_device();

// One HIP call: counted, and failed if a test wants it to. Holds the runtime's lock while it lives.
class Call {
 public:
  // checks_device: fails with the error that ended the calling thread's device, if one did.
  explicit Call(const char* name, bool checks_device = true);
  int error() const { return error_; }
  int injected_error() const { return injected_; }
  Lock& lock() { return lock_; }
  // Notes a mistake of the caller and passes the error on.
  int misuse(int error, const std::string& what);
  // Whether the calling thread captures: some calls would break that.
  int refuse_while_capturing();

 private:
  const char* name_;
  Lock lock_;
  int error_ = 0, injected_ = 0;
};

int injected(const char* function);  // with the lock held
const standin_strategy& fiber_strategy();
standin_strategy strategy();

// --- memory.cc
Block* find_block(const void* address);
// What is wrong with a device's use of `bytes` from an address on, or "".
std::string wrong_range(const void* address, std::size_t bytes, int device);
void check_guards(const Block& block);
void forget_memory();

// --- streams.cc
// The stream of a handle (null: the device's own), or null with `error` set.
Stream* find_stream(Call& call, void* handle, int& error);
void queue(Call& call, Stream* stream, Operation operation, const std::string& what);
// Returns when everything up to the ticket has run, with the device's error.
int finish(Lock& lock, Stream* stream, uint64_t ticket);
int finish_device(Lock& lock, int device);
Stream* new_stream(int device);
double now_ms();

// --- modules.cc
// Runs the nodes in an order that their dependencies allow.
int run_graph(const std::vector<Node>& nodes);

template <class T>
T* find_handle(std::deque<T>& all, void* handle) {
  for (T& each : all)
    if (&each == handle) return &each;
  return nullptr;
}

}  // namespace standin

// For libhiprtc.so: counts a call, and says whether a test wants it to fail.
extern "C" int standin_injected(const char* function);
extern "C" void standin_count_programs(int more);
extern "C" void standin_current_strategy(standin_strategy* result);

#ifdef _WIN32
#define EXPORT extern "C" __declspec(dllexport)
#else
#define EXPORT extern "C" __attribute__((visibility("default")))
#endif
#define HIP_CALL(...)              \
  standin::Call call(__VA_ARGS__); \
  if (int failed = call.error()) return failed
