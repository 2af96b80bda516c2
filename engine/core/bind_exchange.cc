// SPDX-License-Identifier: GPL-3.0-or-later
// Python bindings of batch sizes and bursts.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bind.h"
#include "exchange/batch_rule.h"
#include "exchange/exchange.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace wavefront::engine {

using namespace exchange;
namespace {

void bind_rule(nb::module_& m) {
  using R = BatchRule;
  nb::class_<R>(m, "BatchRule", "Positions per request of a search. See BatchSizes.")
      .def(
          "__init__",
          [](R* rule, int best, std::vector<std::pair<int, double>> curve, int largest, int filled,
             int large_tree, int share, int least, bool together, double factor, int in_flight, int second) {
            if (share < 1) throw nb::value_error("the share must be at least 1");
            new (rule) R{best,  std::move(curve), largest, filled,    large_tree, share,
                         least, together,         factor,  in_flight, second};
          },
          nb::kw_only(), "best"_a, "curve"_a, "largest"_a, "filled"_a, "large_tree"_a, "share"_a, "least"_a,
          "together"_a, "factor"_a, "in_flight"_a, "second"_a)
      .def_ro("in_flight", &R::in_flight)
      .def_prop_ro("capacity", &R::capacity, "Size of the largest batch.")
      .def("in_tree", &R::in_tree, "visits"_a)
      .def("wanted", &R::wanted, "visits"_a, "visits_in_flight"_a)
      .def("fitting", &R::fitting, "milliseconds"_a)
      .def(
          "next",
          [](const R& rule, std::int64_t visits, std::int64_t visits_in_flight, std::int64_t in_time) {
            const Asked asked = rule.next(visits, visits_in_flight, in_time);
            return std::pair(asked.target, asked.ahead);
          },
          "visits"_a, "visits_in_flight"_a, "in_time"_a,
          "Return the next batch's positions that get a visit (0: no batch), and its look-ahead positions. "
          "in_time: the largest batch that is computed in time.");
}

#ifdef __linux__

constexpr std::array kEndNames{"time", "look", "idle", "silence", "other"};

// An exchange with the Python objects that it uses. objects: of the slots' batches.
struct Lent {
  nb::object tree;
  nb::object stream = nb::none();
  int capacity;
  Exchange core;
  std::vector<nb::object> objects{};

  Lent(nb::object owner, const BatchRule& rule, const std::string& priority)
      : tree(std::move(owner)), capacity(rule.capacity()), core(nb::cast<Tree&>(tree), rule, priority) {}

  void add(nb::object batch, std::int64_t id) {
    core.slots.push_back({&nb::cast<Batch&>(batch), id});
    objects.push_back(std::move(batch));
  }
};

// perf_counter and the core have the same clock. Clamped to some years: nanoseconds cannot represent more.
BurstLimits::Time at_seconds(double seconds) {
  constexpr double kLong = 1e9;
  const std::chrono::duration<double> time(std::clamp(seconds, -kLong, kLong));
  return BurstLimits::Time(std::chrono::duration_cast<BurstLimits::Time::duration>(time));
}

void lend(Lent& lent, nb::object stream, std::string network, std::string content_hash, std::int64_t next_id,
          std::optional<double> target_ms, const nb::dict& sent) {
  lent.core.service = {&nb::cast<Stream&>(stream), std::move(network), std::move(content_hash), next_id,
                       target_ms};
  lent.stream = std::move(stream);
  for (auto [id, batch] : sent) lent.add(nb::borrow(batch), nb::cast<std::int64_t>(id));
  while (lent.core.slots.size() < static_cast<std::size_t>(lent.core.rule().in_flight))
    lent.add(nb::cast(new Batch(lent.capacity), nb::rv_policy::take_ownership), 0);
}

nb::dict take_back(Lent& lent) {
  nb::dict sent;
  std::vector<nb::object> objects = std::exchange(lent.objects, {});
  const std::vector<Slot> slots = std::exchange(lent.core.slots, {});
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].id != 0) {
      sent[nb::int_(slots[i].id)] = objects[i];
    } else {
      lent.add(std::move(objects[i]), 0);
    }
  }
  lent.stream = nb::none();
  return sent;
}

const char* run(Lent& lent, double until, double patience, std::optional<double> hard,
                std::optional<std::int64_t> nodes, bool nodes_as_playouts, std::int64_t look_at, double depth,
                int interrupt) {
  if (lent.stream.is_none()) throw nb::value_error("the exchange has no connection: lend it one first");
  BurstLimits limits{at_seconds(until), at_seconds(patience), {}, nodes, nodes_as_playouts, look_at, depth,
                     interrupt};
  if (hard) limits.hard = at_seconds(*hard);
  const nb::gil_scoped_release released;
  return kEndNames[static_cast<std::size_t>(lent.core.run(limits))];
}

void bind_bursts(nb::module_& m) {
  nb::class_<Lent>(m, "Exchange",
                   R"(The batches of a lone search, exchanged without the interpreter. Linux only.

Between `lend` and `take_back` it has a connection, and the record of the batches in flight there
(engine/core/exchange). One thread may use it. in_flight: batches. answers, positions: of answered requests since
`lend`. next_id: of the next request. first_sent: perf_counter of the first request, or None.)")
      .def(nb::init<nb::object, const BatchRule&, const std::string&>(), "tree"_a, "rule"_a, "priority"_a,
           nb::sig("def __init__(self, tree: Tree, rule: BatchRule, priority: str) -> None"))
      .def("lend", &lend, "stream"_a, nb::kw_only(), "network"_a, "content_hash"_a, "next_id"_a,
           "target_ms"_a.none(), "sent"_a,
           nb::sig(
               "def lend(self, stream: protocol._core.Stream, *, network: str, content_hash: str, next_id: "
               "int, target_ms: float | None, sent: dict[int, Batch]) -> None"),
           "Use a connection. content_hash: of the network; results of another one remain in the stream. "
           "target_ms: latency that the requests ask for; None: that of their class. sent: the search's "
           "batches in flight, by request number.")
      .def("take_back", &take_back, nb::sig("def take_back(self) -> dict[int, Batch]"),
           "Forget the connection, and return the batches in flight by request number.")
      .def("run", &run, nb::kw_only(), "until"_a, "patience"_a, "hard"_a.none(), "nodes"_a.none(),
           "nodes_as_playouts"_a, "look_at"_a, "depth"_a, "interrupt"_a,
           nb::sig("def run(self, *, until: float, patience: float, hard: float | None, nodes: int | None, "
                   "nodes_as_playouts: bool, look_at: int, depth: float, interrupt: int) -> "
                   "typing.Literal['time', 'look', 'idle', 'silence', 'other']"),
           R"(Apply answers, collect and send until there is a reason to end, and return the reason.

Times are perf_counter seconds. until: the burst ends with the first answer from then on (time). patience: end
of the longest wait. hard: deadline for the answers to what is sent; None: none. nodes: maximum visits in all,
or playouts if `nodes_as_playouts`; None: unlimited. look_at, depth: root visits and mean depth that require a
check (look). interrupt: descriptor whose input ends the burst; -1: none. idle: nothing is in flight, and there is nothing to send. silence: no message within the patience, or
an interrupt. other: Python must receive the next message.)")
      .def_prop_ro("in_flight", [](const Lent& lent) { return lent.core.in_flight(); })
      .def_prop_ro("answers", [](const Lent& lent) { return lent.core.service.answers; })
      .def_prop_ro("positions", [](const Lent& lent) { return lent.core.service.positions; })
      .def_prop_ro("next_id", [](const Lent& lent) { return lent.core.service.next_id; })
      .def_prop_ro("first_sent", [](const Lent& lent) -> std::optional<double> {
        if (!lent.core.first_sent()) return std::nullopt;
        return std::chrono::duration<double>(lent.core.first_sent()->time_since_epoch()).count();
      });
}

#else

void bind_bursts(nb::module_&) {}

#endif

}  // namespace

void bind_exchange(nb::module_& m) {
  bind_rule(m);
  bind_bursts(m);
}

}  // namespace wavefront::engine
