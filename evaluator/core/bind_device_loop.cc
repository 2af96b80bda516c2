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
  nb::class_<Program>(module, "Program", "See evaluator/_core.pyi.")
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
          nb::arg("steps"), nb::arg("done"), nb::arg("busy"));
  nb::class_<DeviceLoop>(module, "DeviceLoop", "See evaluator/_core.pyi.")
      .def(
          "__init__",
          [](DeviceLoop* loop, Hub& hub, std::vector<std::string> names, std::vector<std::string> classes,
             std::string instance, std::string network, std::size_t slots, nb::handle activate) {
            new (loop) DeviceLoop(hub, std::move(names), std::move(classes), std::move(instance),
                                  std::move(network), slots, call_of(activate));
          },
          nb::arg("hub"), nb::kw_only(), nb::arg("names"), nb::arg("classes"), nb::arg("instance"),
          nb::arg("network"), nb::arg("slots"), nb::arg("activate"), nb::keep_alive<1, 2>())
      .def("prepare", &DeviceLoop::prepare, nb::arg("slot"), nb::arg("positions"), nb::arg("program"))
      .def(
          "run",
          [](DeviceLoop& loop, std::uint64_t connection, double until_ms, double late_ms) {
            const nb::gil_scoped_release released;
            return kStops[static_cast<std::size_t>(loop.run(connection, until_ms, late_ms))];
          },
          nb::arg("connection"), nb::arg("until_ms"), nb::arg("late_ms"))
      .def_prop_ro("unprepared", &DeviceLoop::unprepared)
      .def("answered", [](DeviceLoop& loop) { return bytes_of(loop.answered()); })
      .def("give_up", [](DeviceLoop& loop) { return list_of(loop.give_up()); })
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
          nb::arg("stuck_ms"))
      .def("settle", &DeviceLoop::settle, nb::call_guard<nb::gil_scoped_release>());
}

#else

void bind_device_loop(nb::module_&) {}

#endif

}  // namespace wavefront::evaluator
