// SPDX-License-Identifier: GPL-3.0-or-later
// Random use of a tree, and what must hold of it whatever is done: built with sanitizers and run by
// test_random_programs.py.
//
//     fuzz ROUNDS SEED
//
// A round is a game of some plies in a tree with random settings, one time in four those that the engine has
// by default, and little memory. Between the moves batches are collected, applied out of order, cancelled and
// abandoned, to be answered late; moves are restricted, noise is mixed in; positions come as moves or FENs,
// with or without the other moves kept; trees are saved and loaded. Prints what it has seen; the exit status
// is 1, with what is wrong on standard error, if an invariant does not hold.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "../../../fuzzing.h"
#include "chess/attacks.h"
#include "chess/fen.h"
#include "chess/uci_move.h"
#include "tree/random_evaluator.h"
#include "tree/spread.h"
#include "tree/tree.h"

namespace wavefront::tree {

using namespace chess;
using namespace encoding;

struct Seen {
  unsigned long long nodes = 0, proven = 0, two_folds = 0, full_trees = 0, kept_above = 0, found_by_fen = 0,
                     steps_back = 0, grafted = 0;
  unsigned long long known_draws = 0, spreads = 0, searched_values = 0, promoted = 0;
  unsigned long long errors = 0, corrected_values = 0;
  unsigned long long rescaled_values = 0, late_answers = 0, choices_by_value = 0;
};

struct TreeInvariants {
  const Tree& tree;
  bool pruned;  // then visits and values may outlive what they were taken from
  Seen& seen;
  size_t granules = 0;
  std::vector<BiasEntry> errors{};

  // Of a tree without a batch under way.
  void check() {
    require(tree.batches_in_flight_ == 0, "no batch is under way");
    require(tree.promoted_ == 0, "no visit waits for what is looked ahead to");
    errors.resize(tree.errors_.size());
    walk(tree.top());
    check_choice();
    for (ArenaIndex index : tree.to_free_) count(index);
    if (tree.graft_.subtree != kNone) count(tree.graft_.subtree);
    require(granules * Arena::kGranuleBytes == tree.arena_.used_bytes(),
            "what is in use is what can be reached");
    require(errors == tree.errors_, "the sums of errors are those of the nodes that can be reached");
  }

  bool has_graft() const { return tree.graft_.subtree != kNone; }

  bool is_above(ArenaIndex index) const {
    return std::any_of(tree.above_.begin(), tree.above_.end(), [&](auto step) { return step.node == index; });
  }

  void walk(ArenaIndex index) {
    const Node& node = *tree.node(index);
    ++seen.nodes;
    require(node.in_flight == 0, "nothing is in flight");
    require(node.ahead == 0, "nothing is looked ahead to");
    require(node.state != NodeState::kPending && node.state != NodeState::kAhead, "no evaluation is awaited");
    check_values(node, index == tree.root_ || is_above(index));
    if (node.state == NodeState::kTwoFold) ++seen.two_folds;
    granules += kNodeGranules;
    if (!node.has_edges()) return;
    granules += static_cast<size_t>(edge_granules(node.edge_count) + child_granules(node.child_slots));
    check_edges(node);
    check_record(node, false);
    if (node.state == NodeState::kExpanded) check_children(node, is_above(index));
    for (int i = 0; i < node.child_slots; ++i) {
      if (const ArenaIndex child = tree.children_of(node)[i]; child != kNone) walk(child);
    }
  }

  void check_values(const Node& node, bool may_be_bare) {
    require(node.bounds.lower <= node.bounds.upper, "bounds leave a value");
    if (node.visits == 0) return;
    require(std::abs(node.wl_sum) <= node.visits * (1 + 1e-6), "|q| <= 1");
    require(node.d >= 0 && node.d <= 1.00001f, "0 <= d <= 1");
    require(std::isfinite(node.m) && node.m >= 0, "m is a number of plies");
    if (!node.bounds.proven() || may_be_bare) return;
    ++seen.proven;
    require(std::abs(node.wl_sum - node.bounds.lower * static_cast<double>(node.visits)) < 1e-6 * node.visits,
            "a proven q is exact");
    require(std::abs(node.d - (node.bounds.lower == 0)) < 1e-6, "a proven d is exact");
  }

  // The node's record follows from its visits, value and bounds as they were at the last step of visits.
  void check_record(const Node& node, bool detached) {
    if (!tree.params_.corrects_values()) return;
    const BiasRecord& record = tree.bias_record(node);
    if (record.step == BiasRecord::kNever) return;
    require(record.step == 0 || node.state == NodeState::kExpanded, "visited nodes have errors");
    require(record.step == 0 || detached || !node.bounds.proven(), "proven nodes have none");
    if (!pruned && !detached && !node.bounds.proven() && node.visits > 1) {
      require(record.step > 0, "visits of its moves show a node's error");
    }
    if (record.step == 0) return;
    ++seen.errors;
    errors[record.slot].add(record, 1);
  }

  void check_edges(const Node& node) {
    require(node.edge_count > 0 && node.child_slots <= node.edge_count, "children belong to edges");
    const Edge* edges = tree.arena_.at<Edge>(node.edges);
    for (int i = 1; i < node.edge_count; ++i) {
      require(edges[i - 1].word >= edges[i].word, "edges are sorted by prior");
    }
  }

  // stale: a search below has not told this node yet.
  void check_children(const Node& node, bool stale) {
    uint64_t visits = 0;
    double wl_sum = -node.own_q();
    int lower = -1, upper = -1;
    for (int i = 0; i < node.edge_count; ++i) {
      const ArenaIndex index = i < node.child_slots ? tree.children_of(node)[i] : kNone;
      const Node child = index == kNone ? Node::fresh() : *tree.node(index);
      visits += child.visits;
      wl_sum -= child.wl_sum;
      lower = std::max<int>(lower, child.bounds.lower);
      upper = std::max<int>(upper, child.bounds.upper);
    }
    if (stale) return;
    if (tree.params_.sticky_endgames) {
      require(node.bounds.lower >= -upper && node.bounds.upper <= -lower,
              "bounds follow from the children's");
    }
    if (node.visits == 0) return;
    require(visits < node.visits, "visits are the children's and more");
    if (pruned || node.bounds.proven()) return;  // Visits may end at a proven node.
    require(visits + 1 == node.visits, "visits are the children's and one");
    if (tree.has_known_draw(node)) {
      check_adjusted(node);
      return;
    }
    check_first_value(node, wl_sum);
    require(tree.params_.keeps_spread() || node.spread == 0, "no spread is kept where none is wanted");
    seen.spreads += node.spread > 0;
    if (tree.params_.adjusts_values()) return;  // Below, a draw that is known may have set a value.
    if (tree.params_.keeps_spread()) check_spread(node, node.own_q() + wl_sum - node.wl_sum);
  }

  // sum: what a node's value would be if its first visit had brought the network's.
  void check_first_value(const Node& node, double sum) {
    const double tolerance = 0.001 + 1e-6 * node.visits, difference = std::abs(sum - node.wl_sum);
    const bool searched = tree.params_.transposition_visits > 0;
    if (!searched && !is_rescaled() && !tree.params_.corrects_values()) {
      require(difference < tolerance, "values are the children's and its own");
      return;
    }
    require(std::abs(node.own_q() + sum - node.wl_sum) < 1 + tolerance,
            "values are the children's and one more");
    seen.searched_values += searched && difference > 0.01;
    seen.corrected_values += tree.params_.corrects_values() && difference > 0.01;
    seen.rescaled_values += is_rescaled() && difference > 0.01;
  }

  bool is_rescaled() const { return tree.params_.wdl_ratio != 1 || tree.params_.wdl_shift != 0; }

  void check_adjusted(const Node& node) {
    Node again = node;
    require(node.visits == 1 || std::abs(tree.adjust(again)) < 1e-6 * node.visits,
            "a value follows from the children's");
    ++seen.known_draws;
    bool repeats = false;
    for (int i = 0; i < node.child_slots; ++i) {
      const ArenaIndex index = tree.children_of(node)[i];
      repeats |= index != kNone && tree.node(index)->state == NodeState::kTwoFold;
    }
    const bool wanted = tree.params_.known_draws == KnownDraws::kRepetition;
    require(node.bounds.can_repeat == (wanted && repeats), "who can repeat is known");
  }

  // first_q: what the node's first visit brought, for either side.
  void check_spread(const Node& node, double first_q) {
    double squares = first_q * first_q;
    for (int i = 0; i < node.child_slots; ++i) {
      if (const ArenaIndex index = tree.children_of(node)[i]; index != kNone) {
        squares += sum_of_squares(*tree.node(index));
      }
    }
    require(std::abs(squares - sum_of_squares(node)) < 0.01 * node.visits + 0.01,
            "the spread is that of the children's values and its own");
  }

  // The first move is one of those that nothing else goes before.
  void check_choice() {
    const SearchParams& params = tree.params_;
    const auto ranked = tree.ranked_edges(*tree.node(tree.root_), true);
    if (ranked.empty() || ranked[0].child == nullptr) return;
    auto is_open = [](const Node* child) {
      return child != nullptr && child->bounds.lower < 1 && child->bounds.upper > -1;
    };
    uint32_t most = 0;
    for (const auto& edge : ranked) {
      require(edge.child == nullptr || edge.child->bounds.lower < 1 || ranked[0].child->bounds.lower == 1,
              "a win is chosen");
      if (is_open(edge.child)) most = std::max(most, edge.child->visits);
    }
    if (!is_open(ranked[0].child)) return;
    auto bound = [&](const Node& child) {
      const double visits = child.visits;
      const double sum =
          kPriorVisits * kPriorDeviation * kPriorDeviation + visits * child.spread / kSpreadUnit;
      const double deviation = std::sqrt(sum / (kPriorVisits + visits) / visits);
      return child.wl_sum / visits - params.value_choice_deviations * deviation;
    };
    const double enough = static_cast<double>(params.value_choice_share) * most;
    require(ranked[0].child->visits >= (1 - 1e-6) * enough, "the move chosen has enough visits");
    for (const auto& edge : ranked) {
      if (!is_open(edge.child) || edge.child->visits < (1 + 1e-6) * enough) continue;
      require(bound(*edge.child) <= bound(*ranked[0].child) + 1e-5, "the move chosen has the best bound");
    }
    seen.choices_by_value += ranked[0].child->visits < most;
  }

  void count(ArenaIndex index) {
    const Node& node = *tree.node(index);
    granules += kNodeGranules;
    if (!node.has_edges()) return;
    granules += static_cast<size_t>(edge_granules(node.edge_count) + child_granules(node.child_slots));
    check_record(node, true);
    for (int i = 0; i < node.child_slots; ++i) {
      if (const ArenaIndex child = tree.children_of(node)[i]; child != kNone) count(child);
    }
  }

  static void set_root_visits(Tree& tree, uint32_t visits) {
    Node& root = *tree.node(tree.root_);
    root.wl_sum *= static_cast<double>(visits) / root.visits;
    root.visits = visits;
  }
};

namespace {

const char* const kPositions[] = {
    "r1bqk2r/pppp1ppp/2n2n2/2b1p3/2B1P3/2N2N2/PPPP1PPP/R1BQK2R w KQkq - 6 5",
    "6k1/5ppp/8/8/8/8/5PPP/R3R1K1 w - - 0 1",
    "kbK5/pp6/1P6/8/8/8/8/R7 w - - 0 1",
    "7k/8/5K2/6Q1/8/8/8/8 w - - 0 1",
    "k7/8/8/8/8/5b2/8/6BK w - - 0 1",
    "8/8/4k3/8/8/4p3/4K3/8 w - - 90 60",
    "5bk1/4p1p1/4P1P1/8/p7/4p1p1/P3P1P1/5BK1 w - - 0 1",
    "8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 b - - 0 1",
    "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1",
    "QQQ5/8/8/6k1/8/8/7r/K7 w - - 0 1",
    "2r3k1/p4p2/3Rp2p/1p2P1pK/8/1P4P1/P3Q2P/1q6 b - - 0 1",
};

// What the engine's options have by default where it is not the core's (test_random_programs.py compares
// them).
void set_shipped_defaults(SearchParams& params) {
  params.transposition_visits = 16;
  params.subtree_value_bias = 0.6f;
  params.value_choice_share = 0.2f;
  params.value_choice_deviations = 2.0f;
  params.solves_endings = true;
}

float one_of(Random& random, std::initializer_list<float> values) {
  return values.begin()[random() % values.size()];
}

// As contempt does.
void bend_values(SearchParams& params, Random& random) {
  params.wdl_ratio = one_of(random, {0.5f, 1.0f, 1.6f});
  params.wdl_shift = one_of(random, {-1.5f, -0.2f, 0.3f});
  params.wdl_max_scale = one_of(random, {0.6f, 1.4f});
}

SearchParams random_params(Random& random) {
  SearchParams params;
  params.tree_bytes = size_t{random() % 3 == 0 ? 16u : 2u} << 20;
  params.cache_bytes = random() % 3 == 0 ? 0 : size_t{1} << 20;
  if (random() % 3 == 0) {
    params.subtree_value_bias = one_of(random, {0.35f, 1.0f});
  }
  if (random() % 4 == 0) {
    set_shipped_defaults(params);
    return params;
  }
  params.two_fold_draws = random() % 5 != 0;
  params.sticky_endgames = random() % 5 != 0;
  params.draw_score = static_cast<float>(random() % 5) * 0.25f - 0.5f;
  if (random() % 2 == 0) params.transposition_visits = static_cast<int>(1 + random() % 20);
  if (random() % 4 == 0) params.policy_temperature_at_root = 2.0f;
  params.known_draws = static_cast<KnownDraws>(random() % 3);
  if (random() % 3 == 0) bend_values(params, random);
  if (random() % 3 == 0) {
    params.value_choice_share = one_of(random, {0.01f, 0.2f, 0.6f});
    params.value_choice_deviations = one_of(random, {0.0f, 0.5f, 2.0f});
  }
  return params;
}

using Batches = std::vector<std::unique_ptr<Batch>>;

void apply(Tree& tree, Batch& batch) {
  Evaluations evaluations;
  evaluate_randomly(batch, evaluations);
  tree.apply(batch, evaluations.logits, evaluations.wdl, evaluations.moves_left);
}

// late: where batches go that are abandoned.
void finish(Tree& tree, std::unique_ptr<Batch> batch, Batches& late, Random& random) {
  switch (random() % 14) {
    case 0:
    case 1:
      tree.cancel(*batch);
      return;
    case 2:
      tree.abandon(*batch);
      if (random() % 4 == 0) tree.abandon(*batch);
      late.push_back(std::move(batch));
      return;
    default:
      apply(tree, *batch);
  }
}

// Some answers to abandoned batches come, whatever the tree does by now.
void answer_late(Tree& tree, Batches& late, Random& random, Seen& seen) {
  while (!late.empty() && random() % 4 != 0) {
    const auto chosen = late.begin() + static_cast<std::ptrdiff_t>(random() % late.size());
    const RootInfo before = tree.root_info();
    if (random() % 8 == 0) {
      tree.cancel(**chosen);
    } else {
      apply(tree, **chosen);
      ++seen.late_answers;
    }
    const RootInfo after = tree.root_info();
    require(after.visits == before.visits && after.evaluation.q == before.evaluation.q &&
                after.memory_bytes == before.memory_bytes &&
                after.batches_in_flight == before.batches_in_flight,
            "late answers change nothing in the tree");
    late.erase(chosen);
  }
}

// Collects batches and finishes them in any order. Returns whether the tree was pruned.
bool search(Tree& tree, int steps, Batches& late, Random& random, Seen& seen) {
  constexpr int kCapacity = 320;
  Batches in_flight;
  bool full = false;
  for (int step = 0; step < steps; ++step) {
    const int target = 1 + static_cast<int>(random() % 256);
    const int ahead =
        random() % 3 == 0 ? static_cast<int>(random() % static_cast<uint64_t>(kCapacity - target)) : 0;
    in_flight.push_back(std::make_unique<Batch>(kCapacity));
    const CollectResult result = tree.collect(*in_flight.back(), target, 1 + random() % 2000, ahead);
    full |= result.full;
    seen.promoted += result.promoted;
    if (random() % 16 == 0) tree.lines(3);
    while (in_flight.size() > (step + 1 < steps ? 2 : 0)) {
      const auto chosen = in_flight.begin() + static_cast<std::ptrdiff_t>(random() % in_flight.size());
      finish(tree, std::move(*chosen), late, random);
      in_flight.erase(chosen);
    }
    if (random() % 8 == 0) answer_late(tree, late, random, seen);
  }
  return full || tree.root_info().full;
}

std::string random_move(const Game& game, Random& random) {
  MoveList moves;
  game.current().legal_moves(moves);
  return move_to_uci(game.current(), moves.begin()[random() % moves.size()], game.chess960);
}

// One of the best moves as a rule, else any.
std::string searched_move(const Tree& tree, const Game& game, Random& random) {
  const std::vector<ChildInfo> children = tree.children();
  if (children.empty() || random() % 8 == 0) return random_move(game, random);
  return children[random() % std::min<size_t>(children.size(), 4)].move;
}

// What is saved can be loaded into the same memory, and is the same tree.
void check_file(const Tree& tree, bool pruned, Seen& seen) {
  static const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("wavefront-fuzz-" + std::to_string(std::random_device{}()));
  const TreeFileSize saved = tree.save(path, {}, "");
  Tree loaded(tree.params());
  const TreeFileSize size = loaded.load(path, {});
  std::filesystem::remove(path);
  require(size.nodes == saved.nodes && size.bytes == saved.bytes,
          "a loaded tree has the size of the saved one");
  const RootInfo is = loaded.root_info(), was = tree.root_info();
  require(is.visits == was.visits && is.evaluation.q == was.evaluation.q, "a loaded root is the saved one");
  require(is.memory_bytes <= was.memory_bytes, "a loaded tree needs no more memory");
  TreeInvariants{loaded, pruned, seen}.check();
}

// Takes moves back, searches, and goes forward again. Returns true if the tree was pruned.
bool step_back(Tree& tree, Game& game, Batches& late, Random& random, Seen& seen) {
  const std::vector<Move> moves = game.moves;
  const auto plays = [&](size_t plies) {
    Game played(to_fen(game.start, false), false);
    for (size_t i = 0; i < plies; ++i) played.push(moves[i]);
    return played;
  };
  bool pruned = false;
  size_t plies = moves.size();
  for (int step = 0; step < 3 && plies > 0; ++step) {
    plies -= std::min<size_t>(plies, 1 + random() % 2);
    game = plays(plies);
    tree.set_position(game, 100);
    answer_late(tree, late, random, seen);
    const bool waits = TreeInvariants{tree, pruned, seen}.has_graft();
    seen.steps_back += waits;
    if (random() % 3 == 0) continue;
    pruned |= search(tree, 30, late, random, seen);
    seen.grafted += waits && !TreeInvariants{tree, pruned, seen}.has_graft();
  }
  if (random() % 2 == 0) {
    game = plays(moves.size());
    tree.set_position(game, 100);
  }
  return pruned;
}

void play_round(Random& random, Seen& seen) {
  Tree tree(random_params(random));
  Batches late;
  Game game(kPositions[random() % std::size(kPositions)], false);
  tree.set_position(game);
  const uint64_t longest = random() % 2 == 0 ? 40 : 300;
  bool pruned = false;
  for (int ply = 0; ply < 8; ++ply) {
    if (random() % 4 == 0) tree.set_root_moves({random_move(game, random)});
    if (random() % 6 == 0) tree.add_root_noise(0.25f, 0.3f, random());
    pruned |= search(tree, 10 + static_cast<int>(random() % longest), late, random, seen);
    TreeInvariants{tree, pruned, seen}.check();
    check_file(tree, pruned, seen);

    const Game before = game;
    game.push_uci(searched_move(tree, game, random));
    if (game.current().legal_move_count() == 0) break;
    const int keep = static_cast<int>(random() % 3);
    tree.set_position(game, keep);
    seen.kept_above += keep > 0;
    answer_late(tree, late, random, seen);
    if (random() % 3 == 0) pruned |= search(tree, 5, late, random, seen);
    if (random() % 4 == 0) {  // The game has gone elsewhere.
      game = before;
      if (random() % 2 == 0) game.push_uci(random_move(game, random));
      if (game.current().legal_move_count() == 0) break;
      tree.set_position(game, keep);
    } else if (random() % 4 == 0) {
      game = Game(to_fen(game.current(), false), false);
      seen.found_by_fen += tree.set_position(game) > 0;
    } else if (random() % 2 == 0) {
      pruned |= step_back(tree, game, late, random, seen);
    }
    TreeInvariants{tree, pruned, seen}.check();
    if (random() % 16 == 0) {
      SearchParams params = tree.params();
      params.draw_score = -params.draw_score;
      params.tree_bytes = size_t{1 + random() % 3} << 21;
      if (random() % 2 == 0) bend_values(params, random);
      tree.set_params(params);
      tree.set_position(game);
      answer_late(tree, late, random, seen);
    }
    if (random() % 32 == 0) tree.clear_cache();
    if (random() % 32 == 0) tree.clear();
  }
  seen.full_trees += pruned;
}

void stops_at_the_most_visits(Seen& seen) {
  Tree tree{SearchParams()};
  tree.set_position(Game("7k/8/5K2/6Q1/8/8/8/8 w - - 0 1", false));
  Random random(1);
  Batches late;
  search(tree, 30, late, random, seen);
  TreeInvariants::set_root_visits(tree, 3'999'999'000);
  search(tree, 30, late, random, seen);
  const RootInfo info = tree.root_info();
  require(info.visits == 4'000'000'000, "a root gets 4e9 visits and no more");
  require(std::abs(info.evaluation.q) <= 1 && std::isfinite(info.evaluation.m), "its value is one");
}

// Runs of any length hold what is written to them until they are given back, whatever else is done.
void keeps_what_is_written(Random& random) {
  struct Run {
    ArenaIndex index;
    int granules;
    uint64_t content;
  };
  Arena arena(size_t{2} << 20);
  std::vector<Run> runs;
  size_t used = 0;
  auto give_back = [&](size_t number) {
    const Run run = runs[number];
    for (int i = 0; i < run.granules; ++i) {
      require(*arena.at<uint64_t>(run.index + static_cast<ArenaIndex>(i)) == run.content,
              "memory is one's own");
    }
    arena.free(run.index, run.granules);
    used -= static_cast<size_t>(run.granules);
    runs[number] = runs.back();
    runs.pop_back();
  };
  for (int step = 0; step < 200'000; ++step) {
    const int longest = step / 20'000 % 2 == 0 ? 20 : Arena::kMaxRun;  // other lengths are wanted
    const int granules = 1 + static_cast<int>(random() % static_cast<uint64_t>(longest));
    const ArenaIndex index = arena.allocate(granules);
    if (index == kNone) {
      while (used > arena.capacity_bytes() / Arena::kGranuleBytes / 2) give_back(random() % runs.size());
      continue;
    }
    used += static_cast<size_t>(granules);
    require(used * Arena::kGranuleBytes == arena.used_bytes() && arena.used_bytes() <= arena.capacity_bytes(),
            "the arena counts what it hands out");
    runs.push_back({index, granules, random()});
    for (int i = 0; i < granules; ++i) {
      *arena.at<uint64_t>(index + static_cast<ArenaIndex>(i)) = runs.back().content;
    }
    if (random() % 3 == 0) give_back(random() % runs.size());
  }
  require(arena.held_bytes() <= size_t{2} << 20, "the arena keeps its bound");
}

}  // namespace
}  // namespace wavefront::tree

int main(int argc, char** argv) {
  using namespace wavefront::tree;
  if (argc != 3) return 2;
  initialise_attacks();
  wavefront::Random random(std::strtoull(argv[2], nullptr, 10));
  Seen seen;
  stops_at_the_most_visits(seen);
  keeps_what_is_written(random);
  for (int round = 0; round < std::atoi(argv[1]); ++round) play_round(random, seen);
  std::printf(
      "nodes %llu proven %llu two-folds %llu full trees %llu kept above %llu found by FEN %llu "
      "steps back %llu grafted %llu known draws %llu spreads %llu searched values %llu "
      "promoted %llu errors %llu corrected values %llu rescaled values %llu late answers %llu "
      "choices by value %llu\n",
      seen.nodes, seen.proven, seen.two_folds, seen.full_trees, seen.kept_above, seen.found_by_fen,
      seen.steps_back, seen.grafted, seen.known_draws, seen.spreads, seen.searched_values, seen.promoted,
      seen.errors, seen.corrected_values, seen.rescaled_values, seen.late_answers, seen.choices_by_value);
}
