// SPDX-License-Identifier: GPL-3.0-or-later
// Python bindings of the search tree.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "bind.h"
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

template <typename T>
nb::bytes bytes_of(std::span<const T> values) {
  return nb::bytes(values.data(), values.size_bytes());
}

template <typename T>
auto moved(std::vector<T>&& values, std::initializer_list<size_t> shape) {
  auto* kept = new std::vector<T>(std::move(values));
  nb::capsule owner(kept, [](void* pointer) noexcept { delete static_cast<std::vector<T>*>(pointer); });
  return nb::ndarray<nb::numpy, T>(kept->data(), shape, owner);
}

constexpr std::array<const char*, 3> kKnownDraws{"off", "proven", "repetition"};

void bind_params(nb::module_& m) {
  using P = SearchParams;
  nb::class_<P>(m, "SearchParams",
                "Every setting of the search core, with the defaults of the engine's options.")
      .def(nb::init<>())
      .def(nb::init<const P&>(), "other"_a, "A copy.")
      .def_rw("cpuct", &P::cpuct)
      .def_rw("cpuct_base", &P::cpuct_base)
      .def_rw("cpuct_factor", &P::cpuct_factor)
      .def_rw("cpuct_at_root", &P::cpuct_at_root)
      .def_rw("cpuct_base_at_root", &P::cpuct_base_at_root)
      .def_rw("cpuct_factor_at_root", &P::cpuct_factor_at_root)
      .def_rw("cpuct_deviation_scale", &P::cpuct_deviation_scale)
      .def_rw("deviation_prior", &P::deviation_prior)
      .def_rw("deviation_prior_visits", &P::deviation_prior_visits)
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
          "'off', 'proven' or 'repetition'. Setting anything else raises ValueError.")
      .def_rw("noise_pruning_scale", &P::noise_pruning_scale)
      .def_rw("transposition_visits", &P::transposition_visits)
      .def_prop_rw(
          "tablebases", [](const P& p) { return p.tablebases; },
          [](P& p, std::shared_ptr<syzygy::Tablebases> tablebases) { p.tablebases = std::move(tablebases); },
          nb::for_setter(nb::arg("tablebases").none()), "Syzygy tables, or None.")
      .def_rw("syzygy_50_move_rule", &P::syzygy_50_move_rule)
      .def_rw("syzygy_fast_play", &P::syzygy_fast_play)
      .def_rw("max_collision_events", &P::max_collision_events)
      .def_rw("max_collision_visits", &P::max_collision_visits)
      .def_rw("visits_per_collision", &P::visits_per_collision)
      .def_rw("wdl_ratio", &P::wdl_ratio)
      .def_rw("wdl_shift", &P::wdl_shift)
      .def_rw("wdl_max_scale", &P::wdl_max_scale)
      .def_rw("value_choice_share", &P::value_choice_share)
      .def_rw("value_choice_deviations", &P::value_choice_deviations)
      .def_rw("max_collision_visits_scaling_start", &P::max_collision_visits_scaling_start)
      .def_rw("max_collision_visits_scaling_end", &P::max_collision_visits_scaling_end)
      .def_rw("max_collision_visits_scaling_power", &P::max_collision_visits_scaling_power)
      .def_rw("max_out_of_order_factor", &P::max_out_of_order_factor)
      .def_rw("tree_bytes", &P::tree_bytes)
      .def_rw("cache_bytes", &P::cache_bytes)
      .def_rw("cache_history_length", &P::cache_history_length)
      .def_prop_rw(
          "input_format", [](const P& p) { return static_cast<int>(p.input_format); },
          [](P& p, int number) {
            auto format = input_format_from_number(number);
            if (!format) throw nb::value_error("unknown input format; known: 1 to 5, 132 and 133");
            p.input_format = *format;
          },
          "Number of the network's input encoding. Setting an unknown one raises ValueError.")
      .def_prop_rw(
          "history_fill",
          [](const P& p) {
            return p.history_fill == HistoryFill::kNo        ? "no"
                   : p.history_fill == HistoryFill::kFenOnly ? "fen_only"
                                                             : "always";
          },
          [](P& p, const std::string& name) {
            auto fill = history_fill_from_name(name);
            if (!fill) throw nb::value_error("the history fill must be 'no', 'fen_only' or 'always'");
            p.history_fill = *fill;
          },
          "'no', 'fen_only' or 'always'. Setting anything else raises ValueError.");
}

void bind_batch(nb::module_& m) {
  nb::class_<Batch>(m, "Batch", "Leaves on their way through the evaluator.")
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
          "uint16 policy indices of the legal moves.")
      .def(
          "packed",
          [](const Batch& batch) {
            return nb::make_tuple(bytes_of(batch.positions()), bytes_of(batch.move_offsets()),
                                  bytes_of(batch.policy_indices()));
          },
          "Copies of positions, move_offsets and moves: (bytes, bytes, bytes). For a small batch they take "
          "less time to make than arrays.");
}

void bind_reports(nb::module_& m) {
  nb::class_<CollectResult>(m, "CollectResult")
      .def_ro("evaluations", &CollectResult::evaluations, "Positions in the batch.")
      .def_ro("visits_done", &CollectResult::visits_done, "Visits finished without the evaluator.")
      .def_ro("cache_hits", &CollectResult::cache_hits)
      .def_ro("promoted", &CollectResult::promoted,
              "Visits that wait for what a batch in flight looks ahead to.")
      .def_ro("collision_visits", &CollectResult::collision_visits)
      .def_ro("full", &CollectResult::full, "The tree's memory is used up, and is being pruned.");
  nb::class_<Evaluation>(m, "Evaluation", "For the side to move at the root.")
      .def_ro("q", &Evaluation::q)
      .def_ro("d", &Evaluation::d)
      .def_ro("m", &Evaluation::m, "Plies to the end of the game.")
      .def_prop_ro("wdl", [](const Evaluation& e) { return nb::make_tuple(e.win(), e.d, e.loss()); });
  nb::class_<Proof>(m, "Proof", "A proven result for the side to move at the root.")
      .def_ro("value", &Proof::value, "1 win, 0 draw, -1 loss.")
      .def_ro("plies", &Proof::plies, "Plies to mate; meaningless for draws, and by tablebases.")
      .def_ro("by_tables", &Proof::by_tables, "Whether it rests on tablebases.");
  nb::class_<TableValue>(m, "TableValue", "What tablebases say of a root move, for the side to move there.")
      .def_ro("value", &TableValue::value, "1 win, 0 draw, -1 loss.")
      .def_ro("plies", &TableValue::plies,
              "Plies to the next capture or pawn move if the tables know the root, else to the position that "
              "they know; 0 if unknown.");
  nb::class_<ChildInfo>(m, "ChildInfo", "A root move.")
      .def_ro("move", &ChildInfo::move)
      .def_ro("visits", &ChildInfo::visits)
      .def_ro("in_flight", &ChildInfo::in_flight)
      .def_ro("prior", &ChildInfo::prior)
      .def_ro("raw_prior", &ChildInfo::raw_prior,
              "The prior before noise was mixed in, and before the root's own policy temperature.")
      .def_ro("evaluation", &ChildInfo::evaluation)
      .def_ro("own_q", &ChildInfo::own_q,
              "The network's own value of it, None where it is not known or not asked for.")
      .def_ro("deviation", &ChildInfo::deviation,
              "Standard deviation of the values that its visits brought; 0 where the search keeps none.")
      .def_ro("exploration", &ChildInfo::exploration, "PUCT's U.")
      .def_ro("value", &ChildInfo::value,
              "Q with the value of a draw; of a move without visits, the first-play urgency.")
      .def_ro("score", &ChildInfo::score, "PUCT's score: value, moves-left utility and exploration.")
      .def_prop_ro(
          "bounds",
          [](const ChildInfo& info) { return std::pair<int, int>(info.bounds.lower, info.bounds.upper); },
          "What is proven: the least and the best result, -1 to 1.")
      .def_ro("proof", &ChildInfo::proof);
  nb::class_<Line>(m, "Line", "A root move with its principal variation.")
      .def_ro("moves", &Line::moves)
      .def_ro("move_visits", &Line::move_visits, "Visits of each move.")
      .def_ro("visits", &Line::visits)
      .def_ro("prior", &Line::prior)
      .def_ro("evaluation", &Line::evaluation)
      .def_ro("doubt", &Line::doubt,
              "What the choice of the move takes off Q by ValueChoiceDeviations; None without, or without "
              "visits.")
      .def_ro("proof", &Line::proof)
      .def_ro("by_tables", &Line::by_tables, "What tablebases say of it, unless a mate is proven.");
  nb::class_<RootInfo>(m, "RootInfo", "The state of the search.")
      .def_ro("visits", &RootInfo::visits, "Of the root, those kept from earlier searches included.")
      .def_ro("playouts", &RootInfo::playouts, "Visits since the position was set.")
      .def_ro("mean_depth", &RootInfo::mean_depth, "Mean leaf depth in plies, visits kept included.")
      .def_ro("max_depth", &RootInfo::max_depth)
      .def_ro("evaluations", &RootInfo::evaluations, "Positions sent to the evaluator since then.")
      .def_ro("cache_hits", &RootInfo::cache_hits)
      .def_ro("tablebase_hits", &RootInfo::tablebase_hits,
              "Positions found in tablebases since then, those after the root's moves included.")
      .def_ro("evaluation", &RootInfo::evaluation)
      .def_ro("own_evaluation", &RootInfo::own_evaluation,
              "The network's own, None where it is not known; d and m are NaN if it is no longer cached.")
      .def_ro("q_deviation", &RootInfo::q_deviation,
              "Standard deviation of the values that the playouts brought back.")
      .def_ro("proof", &RootInfo::proof)
      .def_ro("memory_bytes", &RootInfo::memory_bytes)
      .def_ro("hashfull", &RootInfo::hashfull, "Tree memory in use, in thousandths.")
      .def_ro("batches_in_flight", &RootInfo::batches_in_flight)
      .def_ro("promoted", &RootInfo::promoted, "Visits in flight that wait for what a batch looks ahead to.")
      .def_ro("full", &RootInfo::full);
}

}  // namespace

void bind_tree(nb::module_& m) {
  bind_params(m);
  bind_batch(m);
  bind_reports(m);
  using Release = nb::call_guard<nb::gil_scoped_release>;
  nb::class_<Tree>(m, "Tree", R"(The MCTS tree of one game's current position.

One thread may collect, apply, cancel and set positions; any thread may ask for root_info, lines and children.)")
      .def(nb::init<const SearchParams&>(), "params"_a)
      .def_prop_ro(
          "params", [](const Tree& tree) { return SearchParams(tree.params()); }, "A copy.")
      .def("set_params", &Tree::set_params, "params"_a, Release(),
           "Change settings between searches; clears cache and tree where what they hold depends on them.")
      .def(
          "set_position", &Tree::set_position, "game"_a, "keep_before"_a = 0, Release(),
          "Make the game's current position the root; returns the visits kept from before.\n\n"
          "They are kept if the game goes on, or starts from a position of the tree some plies below. Of the "
          "last `keep_before` positions before the current one the other moves are kept as well, in case the "
          "game has gone there. Raises RuntimeError while a batch is in flight.")
      .def("set_root_moves", &Tree::set_root_moves, "moves"_a, Release(),
           "Search only these root moves (UCI); an empty list searches all. Raises ValueError for an illegal "
           "one.")
      .def("root_moves", &Tree::root_moves, Release(),
           "The root moves that the search chooses from (UCI): of those set, or of all, the best ones by the "
           "tablebases where these know the position.")
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
          "Limit the moves searched below the root: (White's, moves in UCI notation, depth, only these).\n\n"
          "A rule holds for moves made less than so many plies below the root; the root's own are those of "
          "set_root_moves. Where the rules leave no move, all are searched. A change forgets the tree.\n\n"
          "Raises ValueError for a depth below 1, RuntimeError for a change while a batch is in flight.")
      .def(
          "add_root_noise", &Tree::add_root_noise, "epsilon"_a, "alpha"_a, "seed"_a, Release(),
          "Mix Dirichlet noise into the root's priors: (1 - epsilon) P + epsilon noise. Done once as long as "
          "it is the root.\n\n"
          "Raises ValueError unless 0 <= epsilon <= 1 and alpha > 0.")
      .def("clear", &Tree::clear, Release(), "Forget the tree; the evaluation cache stays.")
      .def("clear_cache", &Tree::clear_cache, Release())
      .def("collect", &Tree::collect, "batch"_a, "target"_a, "max_visits"_a = UINT64_MAX, "ahead"_a = 0,
           Release(),
           "Fill the batch with up to `target` positions, giving at most `max_visits` visits.\n\n"
           "Then with up to `ahead` positions that are likely to be wanted next: their evaluations go to the "
           "cache, no visit is counted.")
      .def(
          "apply",
          [](Tree& tree, Batch& batch, const FloatArray& logits, const FloatTable& wdl,
             const FloatArray& moves_left) {
            nb::gil_scoped_release release;
            tree.apply(batch, values(logits), values(wdl), values(moves_left));
          },
          "batch"_a, "logits"_a, "wdl"_a, "moves_left"_a,
          "Take the evaluations of a batch: float32 logits [moves], wdl [size, 3], moves_left [size].\n\n"
          "Raises ValueError, and changes nothing, if sizes are wrong or a value is not finite.")
      .def(
          "apply_random",
          [](Tree& tree, Batch& batch) {
            static thread_local Evaluations evaluations;
            evaluate_randomly(batch, evaluations);
            tree.apply(batch, evaluations.logits, evaluations.wdl, evaluations.moves_left);
          },
          "batch"_a, Release(),
          "Apply what the evaluator's `random` backend would answer, without asking it.")
      .def("cancel", &Tree::cancel, "batch"_a, Release(),
           "Take a batch back as if it had not been collected.")
      .def(
          "abandon", &Tree::abandon, "batch"_a, Release(),
          "Take the visits of a batch back, but keep its positions: `apply` then puts their evaluations into "
          "the cache and does nothing else. Until then it is not in flight.")
      .def("root_info", &Tree::root_info, Release())
      .def("lines", &Tree::lines, "count"_a, Release(),
           "The best moves' principal variations, best first. Those without visits come by their priors and "
           "are "
           "valued at the first-play urgency.")
      .def("children", &Tree::children, "own_values"_a = false, Release(),
           "Every root move that is searched, best first. own_values: with the network's own values.");
  m.def(
      "evaluate_randomly",
      [](const Batch& batch) {
        Evaluations made;
        evaluate_randomly(batch, made);
        const size_t moves = made.logits.size(), positions = made.moves_left.size();
        return nb::make_tuple(moved(std::move(made.logits), {moves}),
                              moved(std::move(made.wdl), {positions, 3}),
                              moved(std::move(made.moves_left), {positions}));
      },
      "batch"_a, "What the `random` backend answers for a batch: (logits, wdl, moves_left).");
}

}  // namespace wavefront::engine
