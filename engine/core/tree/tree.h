// SPDX-License-Identifier: GPL-3.0-or-later
// The search tree: collects leaves into batches, applies evaluations, reports results.
//
// One thread searches (set_position, collect, apply, cancel); any thread may read (root_info, lines ...).
// Every public function takes the tree's lock. Several batches may be in flight at once. The position can
// only change while none is.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "chess/game.h"
#include "chess/history.h"
#include "syzygy/root_ranking.h"
#include "tree/arena.h"
#include "tree/batch.h"
#include "tree/bias.h"
#include "tree/evaluation_cache.h"
#include "tree/file.h"
#include "tree/move_rules.h"
#include "tree/node.h"
#include "tree/search_params.h"
#include "tree/selection.h"

namespace wavefront::tree {

struct CollectResult {
  int evaluations = 0;            // positions in the batch
  uint32_t visits_done = 0;       // visits completed at once: cache hits, game ends, proven positions
  uint32_t cache_hits = 0;        // of these, evaluations found in the cache
  uint32_t promoted = 0;          // visits that wait for look-ahead positions of a batch in flight
  uint32_t collision_visits = 0;  // unused visits that met positions in flight
  bool full = false;              // the memory is used up; the least important nodes were pruned
};

// The evaluation of a move or position. q, w, d, l are for the side to move at the root.
struct Evaluation {
  double q = 0, d = 0, m = 0;
  double win() const { return (1 - d + q) / 2; }
  double loss() const { return (1 - d - q) / 2; }
};

// Proven game value for the side to move at the root and, for wins and losses, plies to the mate. by_tables:
// proven by tablebases, so the distance to mate is unknown.
struct Proof {
  int value;
  int plies;
  bool by_tables;
};

// Tablebase value of a move, for the side to move at the root. plies: to the next capture or pawn move if the
// tables know the root, otherwise to the position that they know; 0 if unknown.
struct TableValue {
  int value;
  int plies;
};

struct ChildInfo {
  std::string move;
  uint32_t visits = 0;
  uint32_t in_flight = 0;
  float prior = 0;
  float policy = 0;  // the network's probability, without temperature and noise
  Evaluation evaluation;
  std::optional<float> own_q;  // the network's value for the side to move at the root, if known
  float deviation = 0;         // standard deviation of its values, if recorded
  float exploration = 0;       // PUCT's U
  // Q including the value of a draw, without visits the first-play urgency; and PUCT's score.
  float value = 0;
  float score = 0;
  Bounds bounds = Bounds::unknown();  // for the side to move at the root
  std::optional<Proof> proof;
};

struct Line {
  std::vector<std::string> moves;
  std::vector<uint32_t> move_visits;  // of each move's node
  uint32_t visits = 0;
  float prior = 0;
  Evaluation evaluation;
  std::optional<float> doubt;  // deduction from Q in the choice of the move, if there is one
  std::optional<Proof> proof;
  std::optional<TableValue> by_tables;  // unless a mate is proven
};

struct RootInfo {
  uint32_t visits = 0;    // of the root, including those kept from earlier searches
  uint64_t playouts = 0;  // visits since the position was set
  double mean_depth = 0;  // of the leaves of these playouts, in nodes with the root; 0 without playouts
  uint32_t max_depth = 0;
  uint64_t evaluations = 0;  // positions sent to the evaluator since the position was set
  uint64_t batches = 0;      // batches of them
  uint64_t cache_hits = 0;
  uint64_t tablebase_hits = 0;
  Evaluation evaluation;
  // The network's evaluation. If it is no longer cached, it is unknown, or only d and m are NaN.
  std::optional<Evaluation> own_evaluation;
  double q_deviation = 0;  // standard deviation of the playouts' values
  std::optional<Proof> proof;
  uint64_t memory_bytes = 0;  // of the tree
  int hashfull = 0;           // tree memory in use, in thousandths of the limit
  int batches_in_flight = 0;
  uint32_t promoted = 0;  // visits in flight that wait for look-ahead positions
  bool full = false;      // memory is used up: some of the tree was pruned since the position was set
};

class Tree {
 public:
  explicit Tree(const SearchParams& params);
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;

  const SearchParams& params() const { return params_; }

  // Changes settings between searches. Changes that affect cached or stored evaluations (input format, policy
  // temperature, history fill ...) clear the cache and the tree; another size of the cache clears the cache.
  void set_params(const SearchParams& params);

  // Makes a game's current position the root, and returns the number of visits kept. A subtree is kept if
  // moves of the tree lead from the old root to the position, or the game starts some plies below the root.
  // keep_before: number of previous positions whose other moves are kept, too, in case one of them is played.
  // If it is not 0, a step back in the game keeps the tree as well (graft.cc).
  // Throws std::logic_error while a batch is in flight, std::invalid_argument for a position in which the
  // king could be taken, or a negative number.
  uint32_t set_position(const Game& game, int keep_before = 0);

  // Limits the search to these root moves; empty: all. Throws std::invalid_argument for an illegal one.
  void set_root_moves(const std::vector<std::string>& moves);
  // Returns the root moves to search: those that the search is limited to, or all. If the tablebases know the
  // position, only the best of them.
  std::vector<std::string> root_moves() const;

  // Limits the moves searched below the root. A change clears the tree. Throws std::logic_error for a change
  // while a batch is in flight.
  void set_move_rules(MoveRules rules);

  // Mixes noise into the root's priors, once per root, after its evaluation: P becomes (1 - epsilon) P +
  // epsilon * noise, with noise from a symmetric Dirichlet distribution (AlphaZero's exploration at the
  // root). Throws std::invalid_argument unless 0 <= epsilon <= 1 and 0 < alpha < 1e6.
  void add_root_noise(float epsilon, float alpha, uint64_t seed);

  // Clears the tree, but not the evaluation cache.
  void clear();
  void clear_cache();

  // Writes the tree from the root down to a file (file.h), whose contents are replaced. The evaluation cache
  // is not saved. settings: what the values depend on. note: text that the header returns. Throws
  // std::logic_error while a batch is in flight, std::invalid_argument if the file cannot be written, the
  // tree is too deep, or move rules are set.
  TreeFileSize save(const std::filesystem::path& path, const TreeSettings& settings,
                    const std::string& note) const;

  // Replaces the tree and its position by those of a file. Throws std::logic_error while a batch is in
  // flight. Throws std::invalid_argument, and changes nothing, for a damaged or foreign file, other settings,
  // or more memory than tree_bytes. If only a node shows that the file is invalid, the tree is cleared.
  TreeFileSize load(const std::filesystem::path& path, const TreeSettings& settings);

  // Walks the tree until `target` leaves wait in the batch, or `max_visits` visits are done or in flight. It
  // ends earlier if more positions are useless before an answer. The batch must be empty (new, applied or
  // cancelled). Then adds up to `ahead` positions that the search will probably need next, within the visits
  // left. Their evaluations go to the cache without a visit.
  CollectResult collect(Batch& batch, int target, uint64_t max_visits, int ahead = 0);

  // Applies the evaluations of a collected batch and empties it. logits: one per policy index. wdl: three per
  // position. moves_left: one per position. Throws std::invalid_argument, and changes nothing, for wrong
  // sizes or non-finite values.
  void apply(Batch& batch, std::span<const float> logits, std::span<const float> wdl,
             std::span<const float> moves_left);

  // Undoes the collection of a batch, and empties it.
  void cancel(Batch& batch);

  // Undoes the visits of a batch, but keeps its positions: `apply` then only adds their evaluations to the
  // cache. The batch no longer counts as in flight, so the position may change.
  void abandon(Batch& batch);

  RootInfo root_info() const;
  // Returns the best `count` moves with their principal variations, best first. Moves without visits are
  // sorted by prior, with the first-play urgency as value. Moves that tablebases exclude come last.
  std::vector<Line> lines(int count) const;
  // Returns every searched root move, best first. own_values: include the network's own values, or the
  // results of finished games.
  std::vector<ChildInfo> children(bool own_values = false) const;

 private:
  friend class TreeSaver;        // save.cc
  friend struct TreeInvariants;  // checks in tests/engine/core/tree/fuzz.cc

  enum class Expansion { kQueued, kCached, kTerminal, kKnown };

  Node* node(ArenaIndex index) const { return arena_.at<Node>(index); }
  ArenaIndex* children_of(const Node& parent) const { return arena_.at<ArenaIndex>(parent.children); }

  // tree.cc
  void reset_root();
  void reset_counters();
  void update_root_edges();
  void update_root_priors();
  float root_prior(int edge) const;
  void mix_root_noise();

  // root.cc
  bool follow(const Game& game, size_t keep);
  void climb();
  bool descend_to(std::span<const Move> moves, size_t keep);
  ArenaIndex* slot_of(Node& parent, Move move, bool make);
  bool find_position(const Position& wanted, const Position& position, ArenaIndex index, int plies,
                     std::vector<Move>& way) const;
  void forget_bare_root();
  bool is_on_the_way(ArenaIndex index) const;
  ArenaIndex top() const { return above_.empty() ? root_ : above_.front().node; }

  // graft.cc
  bool step_back(std::span<const Move> way);
  size_t return_to_graft(std::span<const Move> moves);
  void attach_graft();
  void drop_graft();

  // memory.cc
  ArenaIndex allocate(int granules);
  ArenaIndex new_node();
  ArenaIndex new_edges(size_t moves);
  void release(ArenaIndex subtree);
  void release_children(Node& parent);
  void free_some(size_t nodes);
  void keep_room(size_t positions);
  bool make_room(size_t nodes);
  bool prune_some(size_t nodes);
  bool begin_round();
  bool may_collapse(const Node& candidate);
  void collapse(Node& old);
  void reset_hand();
  uint32_t epoch_after(uint64_t handed_out_bytes) const;

  // collect.cc
  void visit(Batch& batch, ArenaIndex index, uint32_t visits);
  void descend(Batch& batch, Node& parent, uint32_t visits);
  bool grow_children(Node& parent, int slots);
  Expansion expand(Batch& batch, Node& leaf);
  void make_cached_visit(Node& leaf, Value value, uint64_t key);
  bool end_game(Node& leaf, int legal_moves);
  bool drawn_by_rule() const;
  uint32_t cycle_in_line() const;
  uint32_t visits_to_give() const;
  void look_ahead(Batch& batch, int ahead);
  void collide(Batch& batch, uint32_t visits);
  uint32_t collision_visits_limit() const;
  uint64_t cache_key(const History& history) const;
  std::optional<Evaluation> network_evaluation(const History& history, const Node& evaluated) const;
  void keep_searched_value(const Node& searched, uint32_t visits);
  bool take_searched_value(uint64_t key, size_t moves, Value& value) const;

  // tablebases.cc
  void rank_root_moves();
  std::optional<syzygy::RootRanking> ranking_against_bare_king() const;
  void limit_root_moves();
  std::optional<int> value_of_leaf_by_tables();
  std::optional<TableValue> value_by_tables(Move move, const Line& line) const;
  void add_lines_left_out(std::vector<Line>& lines, int count) const;

  // backup.cc
  void give_edges(Node& leaf, ArenaIndex edges, std::span<const Move> moves,
                  std::span<const uint16_t> priors);
  void back_up(std::span<const ArenaIndex> path, Value value, uint32_t visits);
  void prove(std::span<const ArenaIndex> path);
  void tell_above(std::span<const ArenaIndex> path, const Node& before, const Node& changed);
  bool tighten(Node& parent) const;
  void undo_two_fold(std::span<const ArenaIndex> path);
  void account_above(std::span<const ArenaIndex> path, Node before);
  void account_for_change(Node& parent, const Node& before, const Node& child) const;
  void take_back(std::span<const ArenaIndex> path);
  bool forget_ahead(std::span<const ArenaIndex> path);
  void take_back_all(const Batch& batch);
  void land(Batch& batch);
  void withdraw(const Batch& batch, const Batch::Collision& collision);
  void finish(Batch& batch);

  // bias.cc
  BiasRecord& bias_record(const Node& owner) const { return *arena_.at<BiasRecord>(owner.edges - 1); }
  Value corrected(const Node& leaf, uint16_t slot, float raw, Value value, bool from_network);
  void note_bias(const Node& searched);
  void forget_bias(const Node& searched);

  // values.cc
  bool has_known_draw(const Node& parent) const;
  double adjust(Node& parent) const;
  std::optional<double> value_by_children(const Node& parent) const;
  double derive_value(Node& parent) const;
  void derive_spread(Node& parent) const;
  void note_repetitions(Node& parent) const;

  // report.cc
  struct RankedEdge {
    int edge;
    const Node* child;  // null if it was never visited
  };
  std::vector<RankedEdge> ranked_edges(const Node& parent, bool is_root) const;
  bool repeats(Move move) const;
  float doubt_of_choice(const Node& child) const;
  std::optional<Proof> proof_of(const Node& child) const;
  std::optional<Proof> root_proof() const;
  Evaluation evaluation_of(const Node& child) const;
  float draw_score_for_mover() const;
  float root_first_play_urgency() const;

  SearchParams params_;
  mutable std::mutex mutex_;
  Arena arena_;
  EvaluationCache cache_;
  std::vector<BiasEntry> errors_;  // of the network, by bias_slot; none if they do not correct it
  uint64_t cache_generation_ = 0;  // incremented when earlier batches must no longer enter the cache
  std::optional<Game> game_;
  History history_;
  ArenaIndex root_ = kNone;
  // A kept node above the root (root.cc), and a copy of its child on the way, made when the root moved down.
  struct Above {
    ArenaIndex node;
    Node child_before;
  };
  std::vector<Above> above_;  // from the top down
  // The tree of an earlier search that waits below the top. way: moves from the top. anchor: the node on the
  // way whose edges it waits for.
  struct Graft {
    ArenaIndex subtree = kNone;
    std::vector<Move> way;
    ArenaIndex anchor = kNone;
  };
  Graft graft_;
  bool third_repetitions_ = false;    // occurred since the tree was empty
  std::vector<Move> root_moves_;      // limit set by the caller; empty: all
  std::vector<Move> searched_moves_;  // those of them that the tablebases leave; empty: all
  std::optional<syzygy::RootRanking> root_ranking_;
  std::unique_ptr<bool[]> allowed_edges_;  // by root edge; null: all
  std::vector<float> root_priors_;         // by root edge; empty: the edges' own
  MoveRules move_rules_;
  struct RootNoise {
    float epsilon;
    float alpha;
    uint64_t seed;
  };
  std::optional<RootNoise> root_noise_;   // not mixed in yet
  std::vector<Edge> edges_before_noise_;  // of the root; empty without noise
  std::vector<ArenaIndex> to_free_;       // detached subtrees, freed gradually

  // The hand that prunes a full tree: its path from the top, with the next child slot of each node, and its
  // pressure (memory.cc).
  struct HandStep {
    ArenaIndex node;
    int slot;
  };
  std::vector<HandStep> hand_;
  int pressure_ = 0;
  uint32_t old_ = 0;
  int looked_at_ = 0, collapsed_ = 0;  // since the last change of pressure
  uint64_t collapsed_in_round_ = 1;
  uint32_t epoch_ = 0;
  uint64_t next_page_at_ = 0;                   // arena_.handed_out_bytes() at the next move to a large page
  bool out_of_memory_ = false;                  // even after pruning
  int hopeless_granules_ = Arena::kMaxRun + 1;  // runs of at least this size were not found

  int batches_in_flight_ = 0;
  uint32_t promoted_ = 0;  // see RootInfo
  bool full_ = false;

  // of the current position's search
  uint64_t playouts_ = 0;
  uint64_t depth_sum_ = 0;
  double value_sum_ = 0;
  double value_square_sum_ = 0;
  uint32_t max_depth_ = 0;
  uint64_t evaluations_ = 0, batches_ = 0;
  uint64_t cache_hits_ = 0;
  uint64_t tablebase_hits_ = 0;

  // of the current collect
  CollectResult result_;
  std::vector<ArenaIndex> path_;
  std::vector<Choice> choices_;
  std::vector<uint16_t> priors_;
  int collision_events_ = 0;
  bool looking_ahead_ = false;
};

}  // namespace wavefront::tree
