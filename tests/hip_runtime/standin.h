// SPDX-License-Identifier: GPL-3.0-or-later
// A stand-in for libamdhip64.so and libhiprtc.so: what tests can tell it, beside the HIP calls themselves.
//
// The real hip-python opens the two libraries and calls them; everything behind the calls is here. Device
// memory is host memory between guard pages, streams are queues that run when something waits for them, and
// kernels run by a *strategy*:
//
//   compile    source and options of hiprtcCompileProgram -> machine code (any bytes that begin with an ELF
//              header, so that hipModuleLoadData finds their length)
//   load       machine code -> a module of yours, for the device's own target
//   function   module and name -> a kernel of yours
//   launch     runs a kernel to its end
//
// The default strategy (fiber_strategy.cc) compiles the source for CPU fibers with the machine's C++
// compiler. Another one (an instruction emulator, say) is set with `standin_set_strategy`; from Python the
// functions are made with ctypes.CFUNCTYPE (standin.py, `Strategy`). Rules for them:
//   - Members left null are the default strategy's.
//   - They are called by whatever thread compiles or waits, one launch at a time, without the runtime's lock.
//     They must not call HIP.
//   - `arguments` are the kernel's arguments as the ABI packs them: in order, each aligned to its size.
//     Pointers are host addresses that may be read and written as they are.
//   - They return 0 or the error that the HIP call (for a launch: the device) shall fail with: 6 of hiprtc
//     for a source that does not compile, 209 for code of another target, 500 for no such kernel, 719 for a
//     failed launch. After a failed launch the device answers everything with that error, as a real one does.
#pragma once
#include <cstddef>

extern "C" {

// Calls standin_deliver(result, ...) with the code and the log, whether it succeeds or not.
typedef int (*standin_compile)(const char* source, const char* name, const char* const* options,
                               int option_count, void* result);
typedef int (*standin_load)(const void* code, std::size_t bytes, const char* target, void** module);
typedef int (*standin_function)(void* module, const char* name, void** function);
typedef int (*standin_launch)(void* function, const unsigned* grid, const unsigned* block,
                              unsigned shared_bytes, const void* arguments, std::size_t argument_bytes);
typedef void (*standin_unload)(void* module);

struct standin_strategy {
  standin_compile compile;
  standin_load load;
  standin_function function;
  standin_launch launch;
  standin_unload unload;
};

// Copied. Null: back to fibers.
void standin_set_strategy(const standin_strategy* strategy);

void standin_deliver(void* result, const void* code, std::size_t bytes, const char* log);

// Forgets everything and starts anew with these devices: "TARGET[,KEY=VALUE...]" separated by ";". Keys:
// name, memory_mb, processors, clock_mhz, integrated, pci. "" is a machine without devices. Returns 0, or 1
// for a mistake in the text. At start the environment's STANDIN_DEVICES is taken, or one gfx1100.
int standin_reset(const char* devices);

// What hipRuntimeGetVersion says (major * 10^7 + minor * 10^5 + patch). Initially STANDIN_VERSION or
// 71500000.
void standin_set_version(int version);

// Lets the `nth` call of `function` from now on, and `times` - 1 after it, fail with `error`. "launch" and
// "compile" are the strategy's. At start STANDIN_FAIL is taken: "FUNCTION:NTH:TIMES:ERROR" separated by ";".
void standin_fail(const char* function, int nth, int times, int error);

// When queued work runs. "lazy" (the default): not before something waits for it, only that, and what was
// queued last runs first unless an event or its stream forbids it, so that a missing wait shows; the same
// holds for the branches of a graph. "eager": at once. A number: as its pseudo-random sequence has it. At
// start STANDIN_ORDER is taken.
void standin_set_order(const char* order);

// While held, nothing runs and whoever waits goes on waiting.
void standin_hold(int held);

// Returns 1 once so many threads wait for the device, 0 when that takes longer.
int standin_await_waiting(int threads, int timeout_ms);

// Everything known, as JSON: "alive" (counts of what was not freed, by kind), "used" (bytes by device),
// "misuse" (what a correct program does not do), "calls" and "launches" (counts by name), "trace" (operations
// in the order queued: stream and what). Valid until the next call. If STANDIN_REPORT names a file, it is
// written there when the process ends.
const char* standin_report();
}
