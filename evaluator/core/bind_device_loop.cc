// SPDX-License-Identifier: GPL-3.0-or-later
#include "bind_device_loop.h"

#ifdef __linux__

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bind_call.h"
#include "device_loop/device_loop.h"

#endif

namespace nb = nanobind;

namespace wavefront::evaluator {

#ifdef __linux__

namespace {

constexpr std::array kStops = {"other",  "woken", "time",       "unprepared", "crowded",
                               "failed", "late",  "not finite", "taken"};

std::vector<Step> steps_of(nb::sequence sequence) {
  std::vector<Step> steps;
  for (nb::handle each : sequence) {
    Step step{call_of(each[0]), nb::cast<int>(each[1]), nb::cast<std::size_t>(each[2]),
              nb::cast<std::size_t>(each[3])};
    if (step.sized >= static_cast<int>(step.call.argument_count))
      throw std::invalid_argument("a call has no such argument");
    steps.push_back(step);
  }
  return steps;
}

std::byte* at(std::uintptr_t address) {
  return reinterpret_cast<std::byte*>(address);
}

Program program_of(std::uintptr_t input, std::size_t offsets_at, std::size_t moves_at, std::size_t positions,
                   std::uintptr_t output, std::size_t moves_left_at, std::size_t logits_at,
                   std::size_t most_moves, nb::sequence steps, nb::handle done, int busy) {
  return {{at(input), offsets_at, moves_at, positions},
          {at(output), moves_left_at, logits_at},
          most_moves,
          steps_of(steps),
          call_of(done),
          busy};
}

nb::list list_of(std::vector<Arrived> requests) {
  nb::list found;
  for (Arrived& request : requests) {
    nb::list frames;
    for (Frame& frame : request.message) frames.append(nb::cast(std::move(frame)));
    found.append(nb::make_tuple(request.number, frames));
  }
  return found;
}

// The array format of evaluator/service/fast_path.py.
nb::bytes bytes_of(const std::vector<Answered>& answered) {
  static_assert(sizeof(Answered) == 32);
  return nb::bytes(answered.data(), answered.size() * sizeof(Answered));
}

}  // namespace

void bind_device_loop(nb::module_& module) {
  nb::class_<Program>(
      module, "Program",
      R"(A program for batches of up to `positions` positions with up to `most_moves` moves in one slot. Sizes
and offsets are bytes; all memory is page-locked and given by address.

input: positions at 0, move offsets at offsets_at, moves at moves_at. output: W D L at 0, moves left and
logits. steps: calls that queue a batch without waiting. Each has the index of the argument that depends
on the number of moves (-1: none), its value for no moves, and its increment per move. done: returns 0
after the batch and `busy` before.)")
      .def(
          "__init__",
          [](Program* program, std::uintptr_t input, std::size_t offsets_at, std::size_t moves_at,
             std::size_t positions, std::uintptr_t output, std::size_t moves_left_at, std::size_t logits_at,
             std::size_t most_moves, nb::sequence steps, nb::handle done, int busy) {
            new (program) Program(program_of(input, offsets_at, moves_at, positions, output, moves_left_at,
                                             logits_at, most_moves, steps, done, busy));
          },
          nb::kw_only(), nb::arg("input"), nb::arg("offsets_at"), nb::arg("moves_at"), nb::arg("positions"),
          nb::arg("output"), nb::arg("moves_left_at"), nb::arg("logits_at"), nb::arg("most_moves"),
          nb::arg("steps"), nb::arg("done"), nb::arg("busy"),
          nb::sig("def __init__(self, *, input: int, offsets_at: int, moves_at: int, positions: int, "
                  "output: int, moves_left_at: int, logits_at: int, most_moves: int, steps: "
                  "collections.abc.Sequence[tuple[typing.Any, int, int, int]], "
                  "done: typing.Any, busy: int) -> None"));
  nb::class_<DeviceLoop>(
      module, "DeviceLoop",
      R"(Serves one connection of a hub without the GIL. Each plain `evaluate` goes to the device at once, even
while earlier ones run. The client gets each answer as soon as it is ready. Other messages stay in the
hub. Linux only: elsewhere the module has no such name.

names: of the network in requests, "" for no name. classes: in the order of their ranks. instance: random
name of the service's run. network: named in results; "" for none. slots: maximum batches in flight.
activate: makes the device current for the calling thread. Times are milliseconds of the monotonic clock.

One thread is in `run`. If a driver call does not return, another thread may call `take_over` and use the
hub.)")
      .def(
          "__init__",
          [](DeviceLoop* loop, Hub& hub, std::vector<std::string> names, std::vector<std::string> classes,
             std::string instance, std::string network, std::size_t slots, nb::handle activate) {
            new (loop) DeviceLoop(hub, std::move(names), std::move(classes), std::move(instance),
                                  std::move(network), slots, call_of(activate));
          },
          nb::arg("hub"), nb::kw_only(), nb::arg("names"), nb::arg("classes"), nb::arg("instance"),
          nb::arg("network"), nb::arg("slots"), nb::arg("activate"), nb::keep_alive<1, 2>(),
          nb::sig("def __init__(self, hub: protocol._core.Hub, *, names: collections.abc.Sequence[str], "
                  "classes: collections.abc.Sequence[str], instance: str, network: str, slots: int, "
                  "activate: typing.Any) -> None"))
      .def("prepare", &DeviceLoop::prepare, nb::arg("slot"), nb::arg("positions"), nb::arg("program"),
           "Set the program of a slot for a batch size, if the moves fit. Not while `run` runs.")
      .def(
          "run",
          [](DeviceLoop& loop, std::uint64_t connection, double until_ms, double late_ms) {
            const nb::gil_scoped_release released;
            return kStops[static_cast<std::size_t>(loop.run(connection, until_ms, late_ms))];
          },
          nb::arg("connection"), nb::arg("until_ms"), nb::arg("late_ms"),
          nb::sig("def run(self, connection: int, until_ms: float, late_ms: float) -> "
                  "typing.Literal['other', 'woken', 'time', 'unprepared', 'crowded', 'failed', 'late', 'not "
                  "finite', 'taken']"),
          R"(Serve a connection until there is a reason to stop. other: the hub has another message. woken: its
watched descriptor is readable. time: `until_ms` has passed. unprepared: the next request has no
program. crowded: more requests wait than may be in flight. After these, no batch is in flight.
failed: a driver call failed. late: a batch takes longer than late_ms. not finite: a result is
infinite or NaN. After these, give up the batches in flight. taken: another thread has done so.)")
      .def_prop_ro("unprepared", &DeviceLoop::unprepared,
                   "Positions and moves of the request without a program.")
      .def(
          "answered", [](DeviceLoop& loop) { return bytes_of(loop.answered()); },
          R"(Return the batches answered since the last call: for each its times of arrival, launch and end as
float64, and its positions and rank as uint32.)")
      .def(
          "give_up", [](DeviceLoop& loop) { return list_of(loop.give_up()); },
          nb::sig("def give_up(self) -> list[tuple[int, list[protocol._core.Frame]]]"),
          R"(Give up the requests in flight and return them with their connections, oldest first; `run` cannot
be used any more. Not while `run` runs.)")
      .def(
          "take_over",
          [](DeviceLoop& loop, double stuck_ms) -> nb::object {
            std::optional<std::vector<Arrived>> requests;
            {
              const nb::gil_scoped_release released;
              requests = loop.take_over(stuck_ms);
            }
            return requests ? nb::object(list_of(std::move(*requests))) : nb::none();
          },
          nb::arg("stuck_ms"),
          nb::sig("def take_over(self, stuck_ms: float) -> list[tuple[int, list[protocol._core.Frame]]] | "
                  "None"),
          R"(The same from another thread, if `run` has been inside the driver for `stuck_ms`; else return
None.)")
      .def("settle", &DeviceLoop::settle, nb::call_guard<nb::gil_scoped_release>(),
           "Wait until the device has finished the given-up batches. Returns False if it has failed.");
}

#else

void bind_device_loop(nb::module_&) {}

#endif

}  // namespace wavefront::evaluator
