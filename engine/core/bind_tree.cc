// SPDX-License-Identifier: GPL-3.0-or-later
// Python bindings of the search tree.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "bind_encoding.h"
#include "tree/random_evaluator.h"
#include "tree/tree.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace wavefront::engine {

using namespace tree;
namespace {

using FloatArray = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using FloatTable = nb::ndarray<const float, nb::shape<-1, 3>, nb::c_contig, nb::device::cpu>;

std::span<const float> values(const FloatArray& array) {
  return {array.data(), array.shape(0)};
}
std::span<const float> values(const FloatTable& table) {
  return {table.data(), 3 * table.shape(0)};
}

// A read-only numpy view of memory that `owner` keeps alive.
template <typename T>
auto view(const T* data, std::initializer_list<size_t> shape, nb::handle owner) {
  return nb::ndarray<nb::numpy, const T>(data, shape, owner);
}

// Copies the parts into new bytes, one after another.
template <typename T>
nb::bytes joined(const std::vector<std::span<const T>>& parts) {
  size_t size = 0;
  for (const auto& part : parts) size += part.size_bytes();
  auto bytes = nb::steal<nb::bytes>(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size)));
  if (!bytes.is_valid()) throw nb::python_error();
  char* end = PyBytes_AsString(bytes.ptr());
  for (const auto& part : parts) {
    std::memcpy(end, part.data(), part.size_bytes());
    end += part.size_bytes();
  }
  return bytes;
}

nb::tuple pack(const std::vector<const Batch*>& batches) {
  std::vector<std::span<const EncodedPosition>> positions;
  std::vector<std::span<const uint16_t>> moves;
  std::vector<uint32_t> offsets{0};
  for (const Batch* batch : batches) {
    positions.push_back(batch->positions());
    moves.push_back(batch->policy_indices());
    const uint32_t before = offsets.back();
    for (uint32_t offset : batch->move_offsets().subspan(1)) offsets.push_back(before + offset);
  }
  return nb::make_tuple(joined(positions), nb::bytes(offsets.data(), offsets.size() * sizeof(uint32_t)),
                        joined(moves));
}

constexpr std::array<const char*, 3> kKnownDraws{"off", "proven", "repetition"};

void bind_params(nb::module_& m) {
  using P = SearchParams;
  nb::class_<P>(m, "SearchParams",
                "The settings of the search core, with the defaults of the engine's options.")
      .def(nb::init<>())
      .def(nb::init<const P&>(), "other"_a, "A copy.")
      .def_rw("cpuct", &P::cpuct)
      .def_rw("cpuct_base", &P::cpuct_base)
      .def_rw("cpuct_factor", &P::cpuct_factor)
      .def_rw("cpuct_at_root", &P::cpuct_at_root)
      .def_rw("cpuct_base_at_root", &P::cpuct_base_at_root)
      .def_rw("cpuct_factor_at_root", &P::cpuct_factor_at_root)
      .def_rw("fpu_absolute", &P::fpu_absolute)
      .def_rw("fpu_value", &P::fpu_value)
      .def_rw("fpu_absolute_at_root", &P::fpu_absolute_at_root)
      .def_rw("fpu_value_at_root", &P::fpu_value_at_root)
      .def_rw("policy_temperature", &P::policy_temperature)
      .def_rw("policy_temperature_at_root", &P::policy_temperature_at_root)
      .def_rw("moves_left_max_effect", &P::moves_left_max_effect)
      .def_rw("moves_left_threshold", &P::moves_left_threshold)
      .def_rw("moves_left_slope", &P::moves_left_slope)
      .def_rw("moves_left_constant_factor", &P::moves_left_constant_factor)
      .def_rw("moves_left_scaled_factor", &P::moves_left_scaled_factor)
      .def_rw("moves_left_quadratic_factor", &P::moves_left_quadratic_factor)
      .def_rw("draw_score", &P::draw_score)
      .def_rw("two_fold_draws", &P::two_fold_draws)
      .def_rw("sticky_endgames", &P::sticky_endgames)
      .def_prop_rw(
          "known_draws", [](const P& p) { return kKnownDraws[static_cast<size_t>(p.known_draws)]; },
          [](P& p, const std::string& name) {
            const auto found = std::find(kKnownDraws.begin(), kKnownDraws.end(), name);
            if (found == kKnownDraws.end())
              throw nb::value_error("the known draws must be 'off', 'proven' or 'repetition'");
            p.known_draws = static_cast<KnownDraws>(found - kKnownDraws.begin());
          },
          "'off', 'proven' or 'repetition'. Other values raise ValueError.")
      .def_rw("transposition_visits", &P::transposition_visits)
      .def_rw("subtree_value_bias", &P::subtree_value_bias)
      .def_prop_rw(
          "tablebases", [](const P& p) { return p.tablebases; },
          [](P& p, std::shared_ptr<syzygy::Tablebases> tablebases) { p.tablebases = std::move(tablebases); },
          nb::for_setter(nb::arg("tablebases").none()), "Syzygy tables, or None.")
      .def_rw("syzygy_50_move_rule", &P::syzygy_50_move_rule)
      .def_rw("syzygy_fast_play", &P::syzygy_fast_play)
      .def_rw("solves_endings", &P::solves_endings)
      .def_rw("max_collision_events", &P::max_collision_events)
      .def_rw("max_collision_visits", &P::max_collision_visits)
      .def_rw("multipv", &P::multipv)
      .def_rw("visits_per_collision", &P::visits_per_collision)
      .def_rw("wdl_ratio", &P::wdl_ratio)
      .def_rw("wdl_shift", &P::wdl_shift)
      .def_rw("wdl_max_scale", &P::wdl_max_scale)
      .def_rw("value_choice_share", &P::value_choice_share)
      .def_rw("value_choice_deviations", &P::value_choice_deviations)
      .def_rw("tree_bytes", &P::tree_bytes)
      .def_rw("cache_bytes", &P::cache_bytes)
      .def_rw("cache_history_length", &P::cache_history_length)
      .def_prop_rw(
          "input_format", [](const P& p) { return static_cast<int>(p.input_format); },
          [](P& p, int number) { p.input_format = checked_format(number); },
          "Number of the network's input encoding. Unknown numbers raise ValueError.")
      .def_prop_rw(
          "history_fill",
          [](const P& p) {
            return p.history_fill == HistoryFill::kNo        ? "no"
                   : p.history_fill == HistoryFill::kFenOnly ? "fen_only"
                                                             : "always";
          },
          [](P& p, const nb::str& name) { p.history_fill = checked_fill(name); },
          "'no', 'fen_only' or 'always'. Other values raise ValueError.");
}

void bind_batch(nb::module_& m) {
  nb::class_<Batch>(m, "Batch", "Leaves for the evaluator.")
      .def(nb::init<int>(), "capacity"_a)
      .def_prop_ro("capacity", &Batch::capacity)
      .def_prop_ro("size", &Batch::size)
      .def_prop_ro("wanted", &Batch::wanted)
      .def_prop_ro("move_count", [](const Batch& batch) { return batch.policy_indices().size(); })
      .def("__len__", &Batch::size)
      .def_prop_ro(
          "positions",
          [](nb::handle self) {
            auto positions = nb::cast<const Batch&>(self).positions();
            return view(reinterpret_cast<const uint8_t*>(positions.data()),
                        {positions.size(), sizeof(EncodedPosition)}, self);
          },
          "uint8 [size, 904], encoded positions; valid until the batch is applied or cancelled.")
      .def_prop_ro(
          "move_offsets",
          [](nb::handle self) {
            auto offsets = nb::cast<const Batch&>(self).move_offsets();
            return view(offsets.data(), {offsets.size()}, self);
          },
          "uint32 [size + 1].")
      .def_prop_ro(
          "moves",
          [](nb::handle self) {
            auto indices = nb::cast<const Batch&>(self).policy_indices();
            return view(indices.data(), {indices.size()}, self);
          },
          "uint16 policy indices of the legal moves.");
  m.def(
      "pack", &pack, "batches"_a,
      "Return copies of positions, move_offsets and moves of batches joined in order, as bytes: faster than "
      "arrays for small batches.");
}

void bind_reports(nb::module_& m) {
  nb::class_<CollectResult>(m, "CollectResult")
      .def_ro("evaluations", &CollectResult::evaluations, "Positions in the batch.")
      .def_ro("visits_done", &CollectResult::visits_done, "Visits finished without the evaluator.")
      .def_ro("cache_hits", &CollectResult::cache_hits)
      .def_ro("promoted", &CollectResult::promoted,
              "Visits that wait for look-ahead positions of a batch in flight.")
      .def_ro("collision_visits", &CollectResult::collision_visits)
      .def_ro("full", &CollectResult::full, "True while a full tree is being pruned.");
  nb::class_<Evaluation>(m, "Evaluation", "For the side to move at the root.")
      .def_ro("q", &Evaluation::q)
      .def_ro("d", &Evaluation::d)
      .def_ro("m", &Evaluation::m, "Plies to the end of the game.")
      .def_prop_ro("wdl", [](const Evaluation& e) { return nb::make_tuple(e.win(), e.d, e.loss()); });
  nb::class_<Proof>(m, "Proof", "A proven result for the side to move at the root.")
      .def_ro("value", &Proof::value, "1 win, 0 draw, -1 loss.")
      .def_ro("plies", &Proof::plies, "Plies to mate; meaningless for draws and tablebase results.")
      .def_ro("by_tables", &Proof::by_tables, "True if the proof depends on tablebases.");
  nb::class_<TableValue>(m, "TableValue", "The tablebase value of a root move, for the side to move.")
      .def_ro("value", &TableValue::value, "1 win, 0 draw, -1 loss.")
      .def_ro("plies", &TableValue::plies,
              "Plies to the next capture or pawn move if the tables know the root, otherwise to the position "
              "that they know; 0 if unknown.");
  nb::class_<ChildInfo>(m, "ChildInfo", "A root move.")
      .def_ro("move", &ChildInfo::move)
      .def_ro("visits", &ChildInfo::visits)
      .def_ro("in_flight", &ChildInfo::in_flight)
      .def_ro("prior", &ChildInfo::prior)
      .def_ro("policy", &ChildInfo::policy, "The network's probability, without temperature and noise.")
      .def_ro("evaluation", &ChildInfo::evaluation)
      .def_ro("own_q", &ChildInfo::own_q, "The network's own value; None if unknown or not requested.")
      .def_ro("deviation", &ChildInfo::deviation,
              "Standard deviation of the values of its visits; 0 if the search does not record it.")
      .def_ro("exploration", &ChildInfo::exploration, "PUCT's U.")
      .def_ro("value", &ChildInfo::value,
              "Q including the value of a draw; without visits, the first-play urgency.")
      .def_ro("score", &ChildInfo::score, "PUCT's score: value, moves-left utility and exploration.")
      .def_prop_ro(
          "bounds",
          [](const ChildInfo& info) { return std::pair<int, int>(info.bounds.lower, info.bounds.upper); },
          "Proven bounds: the worst and best possible result, -1 to 1.")
      .def_ro("proof", &ChildInfo::proof);
  nb::class_<Line>(m, "Line", "A root move with its principal variation.")
      .def_ro("moves", &Line::moves)
      .def_ro("move_visits", &Line::move_visits, "Visits of each move.")
      .def_ro("visits", &Line::visits)
      .def_ro("prior", &Line::prior)
      .def_ro("evaluation", &Line::evaluation)
      .def_ro(
          "doubt", &Line::doubt,
          "Deduction from Q in the choice of the move (ValueChoiceDeviations); None without it or visits.")
      .def_ro("proof", &Line::proof)
      .def_ro("by_tables", &Line::by_tables, "Its tablebase value, unless a mate is proven.");
  nb::class_<RootInfo>(m, "RootInfo", "The state of the search.")
      .def_ro("visits", &RootInfo::visits, "Visits of the root, including those kept from earlier searches.")
      .def_ro("playouts", &RootInfo::playouts, "Visits since the position was set.")
      .def_ro("mean_depth", &RootInfo::mean_depth, "Mean leaf depth of the playouts; the root has depth 1.")
      .def_ro("max_depth", &RootInfo::max_depth)
      .def_ro("evaluations", &RootInfo::evaluations, "Positions sent to the evaluator since then.")
      .def_ro("batches", &RootInfo::batches, "Batches of them.")
      .def_ro("cache_hits", &RootInfo::cache_hits)
      .def_ro("tablebase_hits", &RootInfo::tablebase_hits,
              "Positions found in tablebases since then, including those after the root's moves.")
      .def_ro("evaluation", &RootInfo::evaluation)
      .def_ro("own_evaluation", &RootInfo::own_evaluation,
              "The network's own evaluation; None if unknown. d and m are NaN if it is no longer cached.")
      .def_ro("q_deviation", &RootInfo::q_deviation, "Standard deviation of the playouts' values.")
      .def_ro("proof", &RootInfo::proof)
      .def_ro("memory_bytes", &RootInfo::memory_bytes)
      .def_ro("hashfull", &RootInfo::hashfull, "Tree memory in use, in thousandths.")
      .def_ro("batches_in_flight", &RootInfo::batches_in_flight)
      .def_ro("promoted", &RootInfo::promoted, "Visits in flight that wait for look-ahead positions.")
      .def_ro("full", &RootInfo::full);
}

}  // namespace

void bind_tree(nb::module_& m) {
  bind_params(m);
  bind_batch(m);
  bind_reports(m);
  using Release = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<TreeFileSize>(m, "TreeFileSize", "The size of a saved tree.")
      .def_ro("visits", &TreeFileSize::visits, "Visits of the root.")
      .def_ro("nodes", &TreeFileSize::nodes)
      .def_ro("bytes", &TreeFileSize::bytes, "Of the file.");
  m.def(
      "tree_file_header",
      [](const std::filesystem::path& path) {
        TreeFileHeader header = read_tree_file_header(path);
        return std::pair(std::move(header.game), std::move(header.note));
      },
      "path"_a, Release(),
      "Return the game and the note of a saved tree. Raises ValueError for a damaged or foreign file.");
  nb::class_<Tree>(m, "Tree", R"(The MCTS tree of one game's current position.

One thread may collect, apply, cancel and set positions. root_info, lines and children are thread-safe.)")
      .def(nb::init<const SearchParams&>(), "params"_a)
      .def_prop_ro(
          "params", [](const Tree& tree) { return SearchParams(tree.params()); }, "A copy.")
      .def("set_params", &Tree::set_params, "params"_a, Release(),
           "Change settings between searches. Clears cache and tree if their contents depend on them.")
      .def(
          "set_position", &Tree::set_position, "game"_a, "keep_before"_a = 0, Release(),
          "Make the game's current position the root, and return the number of visits kept.\n\n"
          "Visits are kept if the game continues, or starts at a position of the tree up to four plies "
          "below. "
          "keep_before: number of previous positions whose other moves are kept, too, in case one of them is "
          "played. Raises RuntimeError while a batch is in flight, ValueError for an unplayable position.")
      .def("set_root_moves", &Tree::set_root_moves, "moves"_a, Release(),
           "Search only these root moves (UCI); an empty list searches all. Raises ValueError for an illegal "
           "one.")
      .def("root_moves", &Tree::root_moves, Release(),
           "Return the root moves to search (UCI): those set, or all. If the tablebases know the position, "
           "only the best of them.")
      .def(
          "set_move_rules",
          [](Tree& tree, const std::vector<std::tuple<bool, std::vector<std::string>, int, bool>>& rules) {
            std::vector<MoveRule> made;
            for (const auto& [white, moves, until_depth, only] : rules) {
              made.push_back({white ? Color::kWhite : Color::kBlack, moves, until_depth, only});
            }
            tree.set_move_rules(MoveRules(std::move(made)));
          },
          "rules"_a, Release(),
          "Limit the moves searched below the root. rules: (for White, UCI moves, depth, only these "
          "moves).\n\n"
          "A rule applies to moves less than `depth` plies below the root; set_root_moves limits the root. "
          "If the rules leave no move, all are searched. A change clears the tree.\n\n"
          "Raises ValueError for a depth below 1, RuntimeError for a change while a batch is in flight.")
      .def("add_root_noise", &Tree::add_root_noise, "epsilon"_a, "alpha"_a, "seed"_a, Release(),
           "Mix Dirichlet noise into the root's priors, once per root: (1 - epsilon) P + epsilon noise.\n\n"
           "Raises ValueError unless 0 <= epsilon <= 1 and alpha > 0.")
      .def("clear", &Tree::clear, Release(), "Clear the tree, but not the evaluation cache.")
      .def("clear_cache", &Tree::clear_cache, Release())
      .def("save", &Tree::save, "path"_a, "settings"_a, "note"_a = "", Release(),
           "Write the tree from the root down to a file, whose contents are replaced.\n\n"
           "settings: (name, value) of what the values depend on. note: text of tree_file_header. Raises "
           "ValueError if the file cannot be written, RuntimeError while a batch is in flight.")
      .def("load", &Tree::load, "path"_a, "settings"_a, Release(),
           "Replace the tree and its position by those of a file.\n\n"
           "Raises ValueError for a damaged or foreign file, other settings, or too little memory; "
           "RuntimeError "
           "while a batch is in flight.")
      .def("collect", &Tree::collect, "batch"_a, "target"_a, "max_visits"_a = UINT64_MAX, "ahead"_a = 0,
           Release(),
           "Fill the batch with up to `target` positions, making at most `max_visits` visits.\n\n"
           "Then add up to `ahead` positions that are likely to be needed next. Their evaluations go to the "
           "cache without a visit.")
      .def(
          "apply",
          [](Tree& tree, Batch& batch, const FloatArray& logits, const FloatTable& wdl,
             const FloatArray& moves_left) {
            nb::gil_scoped_release release;
            tree.apply(batch, values(logits), values(wdl), values(moves_left));
          },
          "batch"_a, "logits"_a, "wdl"_a, "moves_left"_a,
          "Apply the evaluations of a batch: float32 logits [moves], wdl [size, 3], moves_left [size].\n\n"
          "Raises ValueError, and changes nothing, for wrong sizes or non-finite values.")
      .def(
          "apply_random",
          [](Tree& tree, Batch& batch) {
            static thread_local Evaluations evaluations;
            evaluate_randomly(batch, evaluations);
            tree.apply(batch, evaluations.logits, evaluations.wdl, evaluations.moves_left);
          },
          "batch"_a, Release(),
          "Apply the results of the evaluator's `random` backend, computed in this process.")
      .def("cancel", &Tree::cancel, "batch"_a, Release(), "Undo the collection of a batch.")
      .def("abandon", &Tree::abandon, "batch"_a, Release(),
           "Undo the visits of a batch, but keep its positions: `apply` then only adds their evaluations to "
           "the "
           "cache. The batch no longer counts as in flight.")
      .def("root_info", &Tree::root_info, Release())
      .def(
          "lines", &Tree::lines, "count"_a, Release(),
          "Return the best moves' principal variations, best first. Moves without visits are sorted by prior "
          "and have the first-play urgency as value.")
      .def("children", &Tree::children, "own_values"_a = false, Release(),
           "Return every searched root move, best first. own_values: include the network's own values.");
  m.def(
      "evaluate_randomly",
      [](const Batch& batch) {
        Evaluations made;
        evaluate_randomly(batch, made);
        const size_t moves = made.logits.size(), positions = made.moves_left.size();
        return nb::make_tuple(owned_array(std::move(made.logits), moves),
                              owned_array(std::move(made.wdl), positions, 3),
                              owned_array(std::move(made.moves_left), positions));
      },
      "batch"_a, "Return the `random` backend's results for a batch: (logits, wdl, moves_left).");
}

}  // namespace wavefront::engine
