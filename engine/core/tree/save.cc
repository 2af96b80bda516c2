// SPDX-License-Identifier: GPL-3.0-or-later
// Saving the tree to a file (file.h).

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "chess/fen.h"
#include "tree/file.h"
#include "tree/file_stream.h"
#include "tree/tree.h"

namespace wavefront::tree {

class TreeSaver {
 public:
  explicit TreeSaver(const Tree& tree) : tree_(tree) {}

  TreeFileSize save(const std::filesystem::path& path, const TreeSettings& settings,
                    const std::string& note) {
    walk([this](const Node& node) { count(node); });
    FileWriter writer(path);
    put_header(writer, settings, note);
    walk([&](const Node& node) { put_node(writer, node); });
    return {tree_.node(tree_.root_)->visits, nodes_, writer.finish()};
  }

 private:
  // Calls a function for each node from the root on, in preorder.
  template <typename Function>
  void walk(Function&& function) const {
    struct Step {
      const Node* node;
      int slot;
    };
    std::vector<Step> steps{{tree_.node(tree_.root_), 0}};
    function(*steps.back().node);
    while (!steps.empty()) {
      Step& step = steps.back();
      if (step.slot >= step.node->child_slots) {
        steps.pop_back();
        continue;
      }
      const ArenaIndex child = tree_.children_of(*step.node)[step.slot++];
      if (child == kNone) continue;
      const Node* below = tree_.node(child);
      function(*below);
      if (below->child_slots == 0 || below->state == NodeState::kCached) continue;
      if (steps.size() >= kMostTreeFilePlies) throw std::invalid_argument("the tree is too deep to be saved");
      steps.push_back({below, 0});
    }
  }

  void count(const Node& node) {
    ++nodes_;
    granules_ += kNodeGranules;
    if (node.state != NodeState::kExpanded) return;
    granules_ += static_cast<uint64_t>(edge_granules(node.edge_count) + child_granules(node.child_slots));
  }

  void put_header(FileWriter& writer, const TreeSettings& settings, const std::string& note) const {
    writer.put(kTreeFileMagic);
    writer.put(kTreeFileVersion);
    writer.put(static_cast<uint32_t>(settings.size()));
    for (const auto& [name, value] : settings) {
      writer.put(name);
      writer.put(value);
    }
    writer.put(note);
    const Game& game = *tree_.game_;
    writer.put(to_fen(game.start, game.chess960));
    writer.put(static_cast<uint8_t>(game.chess960));
    writer.put(static_cast<uint32_t>(game.moves.size()));
    for (Move move : game.moves) writer.put(move.raw());
    writer.put(static_cast<uint8_t>(tree_.third_repetitions_));
    writer.put(nodes_);
    writer.put(granules_);
    writer.put(tree_.node(tree_.root_)->visits);
    writer.put(static_cast<uint8_t>(tree_.edges_before_noise_.size()));
    for (Edge edge : tree_.edges_before_noise_) writer.put(edge.word);
  }

  // Look-ahead leaves no trace in the file.
  void put_node(FileWriter& writer, const Node& saved) const {
    const Node node = saved.state == NodeState::kCached ? Node::fresh() : saved;
    writer.put(node.wl_sum);
    writer.put(node.d);
    writer.put(node.m);
    writer.put(node.visits);
    const uint32_t age = (tree_.epoch_ - node.epoch) % 32;
    writer.put(static_cast<uint8_t>(static_cast<uint32_t>(node.state) | age << 3));
    writer.put(static_cast<uint8_t>((node.bounds.lower + 1) | (node.bounds.upper + 1) << 2 |
                                    node.bounds.by_tables << 4 | node.bounds.can_repeat << 5));
    writer.put(static_cast<uint16_t>(node.own));
    writer.put(node.spread);
    if (node.state == NodeState::kTwoFold) writer.put(node.repeated_after);
    if (node.state != NodeState::kExpanded) return;
    writer.put(node.edge_count);
    writer.put(node.child_slots);
    const Edge* edges = tree_.arena_.at<Edge>(node.edges);
    for (int i = 0; i < node.edge_count; ++i) writer.put(edges[i].word);
    writer.put(std::bit_cast<uint64_t>(tree_.bias_record(node)));
    for (int first = 0; first < node.child_slots; first += 8) {
      uint32_t present = 0;
      for (int i = first; i < std::min(first + 8, int{node.child_slots}); ++i) {
        present |= static_cast<uint32_t>(tree_.children_of(node)[i] != kNone) << (i - first);
      }
      writer.put(static_cast<uint8_t>(present));
    }
  }

  const Tree& tree_;
  uint64_t nodes_ = 0, granules_ = 0;
};

TreeFileSize Tree::save(const std::filesystem::path& path, const TreeSettings& settings,
                        const std::string& note) const {
  std::lock_guard lock(mutex_);
  if (batches_in_flight_ > 0) throw std::logic_error("the tree cannot be saved while a batch is in flight");
  if (!(move_rules_ == MoveRules())) {
    throw std::invalid_argument("a tree with restricted moves cannot be saved");
  }
  return TreeSaver(*this).save(path, settings, note);
}

}  // namespace wavefront::tree
