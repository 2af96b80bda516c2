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
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "bind.h"
#include "exchange/batch_rule.h"
#include "exchange/burst.h"

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

// Counts outlive a run, because a signal handler may raise before the caller gets the result.
struct Bursts {
  std::string priority;
  std::optional<double> target_ms;
  std::int64_t next_id = 0;
  std::int64_t evaluations = 0;
  std::int64_t batches = 0;
  std::int64_t answers = 0;
};

// Times are clamped to some years: nanoseconds cannot represent more.
BurstLimits::Time in_seconds(double seconds) {
  using Clock = std::chrono::steady_clock;
  constexpr double kLong = 1e8;
  const std::chrono::duration<double> time(std::clamp(seconds, -kLong, kLong));
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(time);
}

// sent: batches by request number. `sent` and `spare` are changed in place.
const char* run(Bursts& bursts, Tree& tree, Stream& stream, const BatchRule& rule, const std::string& network,
                const std::string& content_hash, std::int64_t next_id, nb::dict sent, nb::list spare,
                double until, double patience, std::optional<double> hard, std::optional<std::int64_t> nodes,
                bool nodes_as_playouts, std::int64_t look_at, double depth, int interrupt) {
  std::vector<nb::object> objects;
  std::vector<Slot> slots;
  const auto add = [&](nb::handle batch, std::int64_t id) {
    slots.push_back({&nb::cast<Batch&>(batch), id});
    objects.push_back(nb::borrow(batch));
  };
  for (auto [id, batch] : sent) add(batch, nb::cast<std::int64_t>(id));
  for (nb::handle batch : spare) add(batch, 0);
  BurstLimits limits{in_seconds(until), in_seconds(patience), {}, nodes, nodes_as_playouts, look_at, depth,
                     interrupt};
  if (hard) limits.hard = in_seconds(*hard);
  Burst burst(tree, stream, rule, bursts.priority, network, content_hash, next_id, std::move(slots),
              bursts.target_ms);
  BurstEnd end = BurstEnd::kOther;
  std::exception_ptr failure;
  {
    const nb::gil_scoped_release released;
    try {
      end = burst.run(limits);
    } catch (...) {
      failure = std::current_exception();
    }
  }
  bursts.next_id = burst.next_id();
  bursts.evaluations = burst.evaluations();
  bursts.batches = burst.batches();
  bursts.answers = burst.answers();
  sent.clear();
  spare.clear();
  for (std::size_t i = 0; i < objects.size(); ++i) {
    const std::int64_t id = burst.slots()[i].id;
    if (id != 0) {
      sent[nb::int_(id)] = objects[i];
    } else {
      spare.append(objects[i]);
    }
  }
  if (failure) std::rethrow_exception(failure);
  return kEndNames[static_cast<std::size_t>(end)];
}

void bind_bursts(nb::module_& m) {
  nb::class_<Bursts>(
      m, "Bursts", R"(Evaluator calls of a search without the interpreter (engine/core/exchange). Linux only.

priority, target_ms: of its requests; None: no target. Counts of the last run: next_id (of the next
request), evaluations and batches (sent), answers.)")
      .def(
          "__init__",
          [](Bursts* bursts, std::string priority, std::optional<double> target_ms) {
            new (bursts) Bursts{.priority = std::move(priority), .target_ms = target_ms};
          },
          "priority"_a, "target_ms"_a = nb::none())
      .def("run", &run, "tree"_a, "stream"_a, "rule"_a, nb::kw_only(), "network"_a, "content_hash"_a,
           "next_id"_a, "sent"_a, "spare"_a, "until"_a, "patience"_a, "hard"_a.none(), "nodes"_a.none(),
           "nodes_as_playouts"_a, "look_at"_a, "depth"_a, "interrupt"_a,
           nb::sig("def run(self, tree: Tree, stream: protocol._core.Stream, rule: BatchRule, *, network: "
                   "str, content_hash: str, next_id: int, sent: dict[int, Batch], spare: list[Batch], until: "
                   "float, patience: float, hard: float | None, nodes: int | None, nodes_as_playouts: bool, "
                   "look_at: int, depth: float, interrupt: int) -> typing.Literal['time', 'look', 'idle', "
                   "'silence', "
                   "'other']"),
           R"(Apply answers, collect and send until there is a reason to end, and return the reason. See
engine/evaluation/bursts.py for the limits. Times are seconds from now.

sent: batches in flight by request number. `sent` and `spare` are changed in place. content_hash: of the network;
results of another one remain in the stream.)")
      .def_ro("next_id", &Bursts::next_id)
      .def_ro("evaluations", &Bursts::evaluations)
      .def_ro("batches", &Bursts::batches)
      .def_ro("answers", &Bursts::answers);
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
