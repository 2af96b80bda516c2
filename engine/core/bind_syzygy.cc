// SPDX-License-Identifier: GPL-3.0-or-later
// Python bindings of the Syzygy tablebases.

#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "chess/game.h"
#include "syzygy/probe.h"
#include "syzygy/tablebases.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace wavefront::engine {

using namespace chess;
using namespace syzygy;
namespace {

using syzygy::Tablebases;

// Returns nothing if the king could be taken.
std::optional<int> wdl_of(const Tablebases& tables, const Game& game) {
  if (!game.playable()) return std::nullopt;
  const auto wdl = syzygy::probe_wdl(tables, game.current());
  if (!wdl) return std::nullopt;
  return static_cast<int>(*wdl);
}

std::optional<int> dtz_of(const Tablebases& tables, const Game& game) {
  if (!game.playable()) return std::nullopt;
  return syzygy::probe_dtz(tables, game.current());
}

}  // namespace

void bind_syzygy(nb::module_& m) {
  using Release = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<Tablebases>(m, "Tablebases", nb::is_weak_referenceable(), R"(The Syzygy tables in some folders.

Tablebases(folders) lists .rtbw (win, draw, loss) and .rtbz (distance to zeroing) files, and opens each at the
first probe. missing_folders has unreadable folders. Damaged files are ignored, and take_complaints reports
them. Thread-safe.)")
      .def(nb::init<const std::vector<std::filesystem::path>&>(), "folders"_a, Release())
      .def_prop_ro("wdl_tables", &Tablebases::wdl_tables, "Number of WDL tables.")
      .def_prop_ro("dtz_tables", &Tablebases::dtz_tables, "Number of DTZ tables.")
      .def_prop_ro("most_men", &Tablebases::most_men,
                   "Men of the largest WDL table, kings included; 0 without tables.")
      .def_prop_ro("missing_folders", &Tablebases::missing_folders)
      .def("probe_wdl", &wdl_of, "game"_a, Release(),
           "Return the current position's value for the side to move, with a 50-move clock of 0: 2 win,\n"
           "1 cursed win, 0 draw, -1 blessed loss, -2 loss; None if the tables do not have it.")
      .def("probe_dtz", &dtz_of, "game"_a, Release(),
           "Return the plies to the next capture or pawn move or to mate with best play, with the sign of\n"
           "the value; 100 more if the 50-move rule makes it a draw; 0 for draws; None if the tables do not\n"
           "have it. The result may be one too small.")
      .def("take_complaints", &Tablebases::take_complaints,
           "Return the errors in files since the last call, one sentence each.");
}

}  // namespace wavefront::engine
