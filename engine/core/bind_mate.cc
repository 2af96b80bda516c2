// SPDX-License-Identifier: GPL-3.0-or-later
// Python bindings of the mate search.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "bind.h"
#include "chess/game.h"
#include "chess/uci_move.h"
#include "mate/solver.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace wavefront::engine {

using namespace chess;

namespace {

// A mate search with the notation of its game.
struct NamedSolver {
  mate::MateSolver solver;
  Position root;
  bool chess960;
};

std::vector<Move> read_moves(const Position& position, const std::vector<nb::str>& names) {
  std::vector<Move> moves;
  for (const nb::str& name : names) moves.push_back(parse_uci(position, utf8(name)));
  return moves;
}

NamedSolver new_solver(const Game& game, int moves, const std::vector<nb::str>& root_moves,
                       size_t table_bytes) {
  if (moves < 1) throw std::invalid_argument("moves is at least 1, not " + std::to_string(moves));
  if (!game.playable()) throw std::invalid_argument("the side not to move is in check");
  return {mate::MateSolver(game.history, read_moves(game.current(), root_moves), moves, table_bytes),
          game.current(), game.chess960};
}

std::vector<std::string> line_of(const NamedSolver& named) {
  Position position = named.root;
  std::vector<std::string> names;
  for (const Move move : named.solver.line()) {
    names.push_back(move_to_uci(position, move, named.chess960));
    position.play(move);
  }
  return names;
}

}  // namespace

void bind_mate(nb::module_& module) {
  nb::class_<NamedSolver>(module, "MateSolver", R"(A search for the shortest mate by the side to move.

MateSolver(game, moves, root_moves=[], table_bytes=64 MiB) searches for a mate in at most `moves` moves (more
than 127 count as 127) from the game's current position, by proof numbers. root_moves: first moves to choose
from; empty means all. table_bytes: maximum memory of its table. One thread at a time may use it.

    >>> solver = MateSolver(Game("6k1/5ppp/8/8/8/8/8/K2R4 w - - 0 1"), 3)
    >>> solver.run(100_000), solver.mate, solver.line
    (True, 1, ['d1d8'])

Raises ValueError for fewer than 1 move, an illegal root move, or a game that is not playable.)")
      .def(
          "__init__",
          [](NamedSolver* self, const Game& game, int moves, const std::vector<nb::str>& root_moves,
             size_t table_bytes) {
            new (self) NamedSolver(new_solver(game, moves, root_moves, table_bytes));
          },
          "game"_a, "moves"_a, "root_moves"_a = std::vector<nb::str>(), "table_bytes"_a = size_t{64} << 20)
      .def(
          "run", [](NamedSolver& named, uint64_t positions) { return named.solver.run(positions); },
          "positions"_a, nb::call_guard<nb::gil_scoped_release>(),
          "Search about this number of further positions. Return True once the result is final: a mate with\n"
          "its line, or the proof that there is none. Releases the GIL.")
      .def_prop_ro(
          "mate", [](const NamedSolver& named) { return named.solver.mate(); },
          "Moves of the shortest mate; 0 while none is known.")
      .def_prop_ro(
          "excluded", [](const NamedSolver& named) { return named.solver.excluded(); },
          "There is no mate within this number of moves.")
      .def_prop_ro("line", &line_of,
                   "The moves of the mate with the longest defence, in UCI notation. Incomplete until run\n"
                   "returns True.")
      .def_prop_ro(
          "positions", [](const NamedSolver& named) { return named.solver.positions(); },
          "Number of positions searched so far.")
      .def_prop_ro(
          "table_bytes", [](const NamedSolver& named) { return named.solver.table().bytes(); },
          "Current size of the table in bytes.")
      .def_prop_ro(
          "table_fill", [](const NamedSolver& named) { return named.solver.table().fill(); },
          "Entries in use, in thousandths of the maximum.");
}

}  // namespace wavefront::engine
