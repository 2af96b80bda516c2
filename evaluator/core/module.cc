// SPDX-License-Identifier: GPL-3.0-or-later
// The Python module evaluator._core.
#include <nanobind/nanobind.h>

#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "bind_call.h"
#include "bind_device_loop.h"
#include "device_batch.h"
#include "heap.h"
#include "request.h"

namespace nb = nanobind;

namespace wavefront::evaluator {
namespace {

// The memory of a numpy array, kept alive with this object. Created and destroyed with the GIL held.
class Memory {
 public:
  Memory(nb::handle array, int flags) {
    if (PyObject_GetBuffer(array.ptr(), &view_, flags) != 0) throw nb::python_error();
  }
  ~Memory() { PyBuffer_Release(&view_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  template <typename T>
  T* as() const {
    return static_cast<T*>(view_.buf);
  }
  template <typename T>
  std::size_t count() const {
    return static_cast<std::size_t>(view_.len) / sizeof(T);
  }

 private:
  Py_buffer view_{};
};

class Memories {
 public:
  const Memory& of(nb::handle array, int flags = PyBUF_SIMPLE) {
    return *memories_.emplace_back(std::make_unique<Memory>(array, flags));
  }

 private:
  std::vector<std::unique_ptr<Memory>> memories_;
};

Part part_of(nb::handle batch, Memories& memories) {
  const Memory& positions = memories.of(batch.attr("positions"));
  const Memory& offsets = memories.of(batch.attr("move_offsets"));
  const Memory& moves = memories.of(batch.attr("moves"));
  const Part part{positions.as<std::byte>(), offsets.as<std::uint32_t>(), moves.as<std::uint16_t>(),
                  positions.count<std::byte>() / kPositionBytes, moves.count<std::uint16_t>()};
  if (offsets.count<std::uint32_t>() != part.position_count + 1) {
    throw std::invalid_argument("move_offsets must have one entry more than there are positions");
  }
  return part;
}

std::vector<Part> parts_of(nb::sequence batches, Memories& memories) {
  std::vector<Part> parts;
  for (nb::handle batch : batches) parts.push_back(part_of(batch, memories));
  return parts;
}

bool is_sound_batch(nb::handle batch) {
  Memories memories;
  return is_sound(part_of(batch, memories));
}

std::vector<Call> calls_of(nb::sequence sequence) {
  std::vector<Call> calls;
  for (nb::handle each : sequence) calls.push_back(call_of(each));
  return calls;
}

nb::tuple run_batch(nb::sequence batches, nb::handle input, std::size_t offsets_at, std::size_t moves_at,
                    std::size_t capacity, std::mutex& turn, nb::sequence before, nb::sequence in_turn,
                    nb::sequence after, nb::sequence outputs) {
  Memories memories;
  const std::vector<Part> parts = parts_of(batches, memories);
  const Memory& block = memories.of(input, PyBUF_WRITABLE);
  std::size_t positions = 0;
  std::size_t moves = 0;
  for (const Part& part : parts) {
    positions += part.position_count;
    moves += part.move_count;
  }
  if (positions > capacity || capacity * kPositionBytes > offsets_at ||
      offsets_at + (capacity + 1) * sizeof(std::uint32_t) > moves_at ||
      moves_at + moves * sizeof(std::uint16_t) > block.count<std::byte>()) {
    throw std::invalid_argument("the batch does not fit into its block");
  }
  const Submission submission{calls_of(before), calls_of(in_turn), calls_of(after)};
  std::vector<Output> wanted;
  for (nb::handle output : outputs) {
    const Memory& from = memories.of(output[0]);
    const Memory& to = memories.of(output[1], PyBUF_WRITABLE);
    if (from.count<float>() != to.count<float>()) throw std::invalid_argument("outputs differ in size");
    wanted.push_back({to.as<float>(), from.as<float>(), to.count<float>()});
  }
  Failure failure{};
  bool finite = true;
  {
    const nb::gil_scoped_release released;
    join(parts, {block.as<std::byte>(), offsets_at, moves_at, capacity});
    failure = submit(submission, turn);
    if (failure.call < 0) finite = take(wanted);
  }
  return nb::make_tuple(failure.call, failure.status, finite);
}

}  // namespace
}  // namespace wavefront::evaluator

NB_MODULE(_core, module) {
  nb::set_leak_warnings(false);  // daemon threads may hold objects at the interpreter's end
  module.doc() = "What the evaluator does without the interpreter.";
  module.attr("CORE_DIGEST") = WAVEFRONT_CORE_DIGEST;
  nb::class_<std::mutex>(module, "Turn", "A lock for `run_batch`.").def(nb::init<>());
  module.def(
      "is_sound", &wavefront::evaluator::is_sound_batch, nb::arg("batch"),
      nb::sig("def is_sound(batch: protocol.batch.PositionBatch) -> bool"),
      R"(Return True if `protocol.wire.codec.check_batch` would accept a batch. Raises ValueError unless there is one
more move offset than positions.)");
  module.def("run_batch", &wavefront::evaluator::run_batch, nb::arg("parts"), nb::arg("input"), nb::kw_only(),
             nb::arg("offsets_at"), nb::arg("moves_at"), nb::arg("capacity"), nb::arg("turn"),
             nb::arg("before"), nb::arg("in_turn"), nb::arg("after"), nb::arg("outputs"),
             nb::sig("def run_batch(parts: collections.abc.Sequence[protocol.batch.PositionBatch], input: "
                     "numpy.typing.NDArray[numpy.uint8], *, offsets_at: int, moves_at: int, capacity: int, "
                     "turn: Turn, before: collections.abc.Sequence[typing.Any], "
                     "in_turn: collections.abc.Sequence[typing.Any], after: "
                     "collections.abc.Sequence[typing.Any], outputs: "
                     "collections.abc.Sequence[tuple[numpy.typing.NDArray[numpy.uint8], "
                     "numpy.typing.NDArray[numpy.float32]]]) -> tuple[int, int, bool]"),
             R"(Run one batch on a device with the GIL released.

Concatenates the parts in `input` (positions at 0, move offsets of `capacity` positions at `offsets_at`,
moves at `moves_at`; in bytes). Makes the calls until one fails, those of `in_turn` while holding `turn`.
Then copies the outputs, each from page-locked memory to an array of the same size.

Returns (index of the failed call or -1, its status, whether all outputs are finite). Raises ValueError if
the parts do not fit into `input`.)");
  module.def("keep_heap_small", &wavefront::device::keep_heap_small,
             "Make this process return large free memory blocks to the system.");
  wavefront::evaluator::bind_device_loop(module);
}
