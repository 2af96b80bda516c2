// SPDX-License-Identifier: GPL-3.0-or-later
#include "bind_gate.h"

#ifdef __linux__

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <chrono>

#include "gate/gate.h"

#endif

namespace nb = nanobind;

namespace wavefront::evaluator {

using namespace gate;

#ifdef __linux__

namespace {

nb::dict counts_of(const Gate& gate) {
  nb::dict counts;
  const auto found = gate.counts();
  for (std::size_t i = 0; i < kEndings; ++i) counts[kEndingNames[i]] = found[i];
  return counts;
}

nb::list news_of(Gate& gate) {
  nb::list news;
  for (const Ended& ended : gate.news())
    news.append(nb::make_tuple(ended.address, kEndingNames[static_cast<std::size_t>(ended.reason)]));
  return news;
}

void took(ByteAccount& link, nb::list frames, std::size_t first) {
  std::int64_t cost = 0;
  for (std::size_t i = first; i < frames.size(); ++i)
    cost += cost_of(nb::len(nb::handle(frames[i])), link.mechanism());
  link.took(cost);
}

}  // namespace

void bind_gate(nb::module_& module) {
  using std::chrono::milliseconds;
  nb::class_<ByteAccount>(module, "ByteAccount", "See evaluator/_core.pyi.")
      .def_ro("address", &ByteAccount::address)
      .def("establish", &ByteAccount::establish, nb::kw_only(), nb::arg("administrator"))
      .def("charge", &ByteAccount::charge, nb::arg("size"))
      .def("release", &ByteAccount::release, nb::arg("size"))
      .def("answer", &ByteAccount::answer, nb::arg("charged"), nb::arg("size"))
      .def("took", &took, nb::arg("frames"), nb::arg("first") = 0)
      .def("cut", &ByteAccount::cut)
      .def_prop_ro("arriving", &ByteAccount::arriving)
      .def_prop_ro("held", &ByteAccount::held)
      .def_prop_ro("unread", &ByteAccount::unread);
  nb::class_<Gate>(module, "Gate", "See evaluator/_core.pyi.")
      .def(
          "__init__",
          [](Gate* gate, std::size_t frame, std::size_t message, std::size_t parts, std::int64_t arriving,
             std::int64_t kept, std::int64_t promised, std::int64_t buffered, std::size_t connections,
             std::size_t per_source, int greeting_ms) {
            new (gate) Gate({{frame, message, parts},
                             {arriving, kept, promised},
                             {connections, per_source},
                             buffered,
                             milliseconds(greeting_ms)});
          },
          nb::kw_only(), nb::arg("frame"), nb::arg("message"), nb::arg("parts"), nb::arg("arriving"),
          nb::arg("kept"), nb::arg("promised"), nb::arg("buffered"), nb::arg("connections"),
          nb::arg("per_source"), nb::arg("greeting_ms"))
      .def(
          "listen",
          [](Gate& gate, int listener, std::string path, bool local, bool keys) {
            gate.listen(Descriptor(listener), std::move(path), local ? Door::kLocal : Door::kPublic,
                        keys ? Mechanism::kCurve : Mechanism::kNull);
          },
          nb::arg("listener"), nb::arg("path"), nb::kw_only(), nb::arg("local"), nb::arg("keys"))
      .def("stop_listening", &Gate::stop_listening)
      .def("link_of", &Gate::link_of, nb::arg("descriptor"))
      .def("__len__", &Gate::size)
      .def_prop_ro("buffered", &Gate::buffered)
      .def("counts", &counts_of)
      .def("news", &news_of)
      .def(
          "close", [](Gate& gate, int linger_ms) { gate.close(milliseconds(linger_ms)); },
          nb::arg("linger_ms"), nb::call_guard<nb::gil_scoped_release>());
}

#else

void bind_gate(nb::module_&) {}

#endif

}  // namespace wavefront::evaluator
