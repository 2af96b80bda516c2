// SPDX-License-Identifier: GPL-3.0-or-later
// Loading the tree from a file (file.h), which may be damaged or forged.

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>

#include "tree/file.h"
#include "tree/file_stream.h"
#include "tree/tree.h"

namespace wavefront::tree {
namespace {

[[noreturn]] void refuse(const char* what) {
  throw std::invalid_argument(std::string("the file is damaged: ") + what);
}

void require(bool holds, const char* what) {
  if (!holds) refuse(what);
}

constexpr uint32_t kMostVisits = 4'000'000'000;  // as in collect.cc
constexpr float kMostPlies = 1e9f;

std::string printable(std::string text) {
  for (char& letter : text) {
    if (letter < ' ' || letter > '~') letter = '?';
  }
  if (text.size() > 100) text = text.substr(0, 100) + "...";
  return text.empty() ? "(empty)" : text;
}

const std::string* value_of(const TreeSettings& settings, const std::string& name) {
  const auto found =
      std::find_if(settings.begin(), settings.end(), [&](const auto& each) { return each.first == name; });
  return found == settings.end() ? nullptr : &found->second;
}

// Throws std::invalid_argument with the settings that differ.
void compare(const TreeSettings& saved, const TreeSettings& wanted) {
  std::string differences;
  auto tell = [&](const std::string& name, const std::string* there, const std::string* here) {
    differences += (differences.empty() ? "" : "; ") + printable(name) + ": " +
                   (there == nullptr ? "(none)" : printable(*there)) + " in the file, " +
                   (here == nullptr ? "(none)" : printable(*here)) + " here";
  };
  for (const auto& [name, here] : wanted) {
    const std::string* there = value_of(saved, name);
    if (there == nullptr || *there != here) tell(name, there, &here);
  }
  for (const auto& [name, there] : saved) {
    if (value_of(wanted, name) == nullptr) tell(name, &there, nullptr);
  }
  if (!differences.empty())
    throw std::invalid_argument("the tree was made with other settings: " + differences);
}

}  // namespace

class TreeLoader {
 public:
  // epoch: of the tree after loading.
  TreeLoader(Arena& arena, std::vector<BiasEntry>& errors, FileReader& reader, const TreeFileHeader& header,
             uint32_t epoch)
      : arena_(arena),
        errors_(errors),
        reader_(reader),
        header_(header),
        epoch_(epoch),
        seen_(size_t{1} << 16) {
    frames_.reserve(kMostTreeFilePlies);
  }

  // Returns the root.
  ArenaIndex load() {
    const ArenaIndex root = take_node(nullptr, Move());
    require(arena_.at<Node>(root)->visits == header_.visits, "the root has other visits");
    if (!header_.edges_before_noise.empty()) {
      require(arena_.at<Node>(root)->state == NodeState::kExpanded, "a root without edges has noise");
      check_edges(header_.edges_before_noise, header_.game.current());
    }
    while (!frames_.empty()) {
      Frame& frame = frames_.back();
      const Node& parent = *arena_.at<Node>(frame.node);
      while (frame.slot < parent.child_slots && !frame.has(frame.slot)) ++frame.slot;
      if (frame.slot >= parent.child_slots) {
        frames_.pop_back();
        continue;
      }
      const int slot = frame.slot++;
      const ArenaIndex child = take_node(&frame, arena_.at<Edge>(parent.edges)[slot].move());
      arena_.at<ArenaIndex>(parent.children)[slot] = child;
    }
    require(nodes_ == header_.nodes && granules_ == header_.granules && reader_.at_end(),
            "its size is not what it says");
    return root;
  }

 private:
  // A node whose children are being read.
  struct Frame {
    ArenaIndex node;
    int slot;
    uint64_t child_visits;
    Position position;
    std::array<uint8_t, 32> present;

    bool has(int i) const { return (present[static_cast<size_t>(i) / 8] >> (i % 8) & 1) != 0; }
  };

  ArenaIndex allocate(int granules) {
    granules_ += static_cast<uint64_t>(granules);
    require(granules_ <= header_.granules, "it has more nodes than it says");
    const ArenaIndex index = arena_.allocate(granules, true);
    if (index == kNone) throw std::invalid_argument("the tree does not fit into RamLimitMb");
    return index;
  }

  // above: its parent; null for the root. move: from there.
  ArenaIndex take_node(Frame* above, Move move) {
    const ArenaIndex index = allocate(kNodeGranules);
    Node& node = *arena_.at<Node>(index);
    node = Node::fresh();
    ++nodes_;
    node.wl_sum = reader_.take_double();
    node.d = reader_.take_float();
    node.m = reader_.take_float();
    node.visits = reader_.take<uint32_t>();
    const auto state = reader_.take<uint8_t>(), bounds = reader_.take<uint8_t>();
    node.state = static_cast<NodeState>(state & 7);
    node.epoch = static_cast<uint8_t>((epoch_ - (state >> 3)) % 32);
    const int lower = (bounds & 3) - 1, upper = (bounds >> 2 & 3) - 1;
    require(lower <= upper && upper <= 1 && bounds < 64, "bounds of a value");
    node.bounds = {static_cast<int8_t>(lower), static_cast<int8_t>(upper),
                   static_cast<uint8_t>(bounds >> 4 & 1), static_cast<uint8_t>(bounds >> 5)};
    node.own = static_cast<int16_t>(reader_.take<uint16_t>());
    node.spread = reader_.take<uint16_t>();
    check_values(node);
    if (above != nullptr) {
      above->child_visits += node.visits;
      const uint32_t visits = arena_.at<Node>(above->node)->visits;
      require(visits == 0 || above->child_visits < visits, "a position has fewer visits than its moves");
    }
    switch (node.state) {
      case NodeState::kNew:
        break;
      case NodeState::kTerminal:
        require(node.visits > 0, "a game's end without visits");
        break;
      case NodeState::kTwoFold:
        require(node.visits > 0 && above != nullptr, "a repetition without visits");
        node.repeated_after = reader_.take<uint32_t>();
        break;
      case NodeState::kExpanded:
        take_moves(index, above, move);
        break;
      default:
        refuse("state of a node");
    }
    return index;
  }

  static void check_values(const Node& node) {
    require(node.visits <= kMostVisits, "number of visits");
    require(std::abs(node.wl_sum) <= node.visits * (1 + 1e-6), "value of a position");
    require(node.d >= 0.0f && node.d <= 1.001f, "draws of a position");
    require(node.m >= 0.0f && node.m <= kMostPlies, "plies of a position");
    require(node.own >= -32767, "the network's value");
  }

  // Reads the edges and the child slots of an expanded node, and begins to read its children.
  void take_moves(ArenaIndex index, const Frame* above, Move move) {
    require(frames_.size() < kMostTreeFilePlies, "it is too deep");
    Frame frame{index, 0, 0, above == nullptr ? header_.game.current() : above->position, {}};
    if (above != nullptr) frame.position.play(move);
    Node& node = *arena_.at<Node>(index);
    const auto edge_count = reader_.take<uint8_t>(), slots = reader_.take<uint8_t>();
    require(edge_count > 0 && slots <= edge_count, "number of moves");
    const ArenaIndex edges = allocate(edge_granules(edge_count)) + 1;
    Edge* first = arena_.at<Edge>(edges);
    for (int i = 0; i < edge_count; ++i) first[i].word = reader_.take<uint32_t>();
    check_edges({first, edge_count}, frame.position);
    const auto record = std::bit_cast<BiasRecord>(reader_.take<uint64_t>());
    require(!record.counts() || (!errors_.empty() && !node.bounds.proven()), "error of the network");
    if (record.counts()) errors_[record.slot].add(record, 1);
    *arena_.at<BiasRecord>(edges - 1) = record;
    node.edges = edges;
    node.edge_count = edge_count;
    if (slots == 0) return;
    node.children = allocate(child_granules(slots));
    node.child_slots = slots;
    std::fill_n(arena_.at<ArenaIndex>(node.children), slots, kNone);
    for (size_t i = 0; i < (slots + size_t{7}) / 8; ++i) frame.present[i] = reader_.take<uint8_t>();
    require(slots % 8 == 0 || frame.present[slots / 8] >> (slots % 8) == 0, "child of no move");
    frames_.push_back(frame);
  }

  // Edges must be the legal moves of their position, each once, sorted by prior.
  void check_edges(std::span<const Edge> edges, const Position& position) {
    MoveList legal;
    position.legal_moves(legal);
    require(edges.size() == static_cast<size_t>(legal.size()), "number of legal moves");
    ++stamp_;
    for (Move move : legal) seen_[move.raw()] = stamp_;
    uint32_t last = ~uint32_t{0};
    for (Edge edge : edges) {
      uint64_t& seen = seen_[edge.move().raw()];
      require(seen == stamp_, "illegal move");
      seen = 0;
      require(edge.word <= last, "order of moves");
      last = edge.word;
    }
  }

  Arena& arena_;
  std::vector<BiasEntry>& errors_;
  FileReader& reader_;
  const TreeFileHeader& header_;
  const uint32_t epoch_;
  uint64_t nodes_ = 0, granules_ = 0;
  std::vector<Frame> frames_;
  std::vector<uint64_t> seen_;  // by move: stamp of the position that has it
  uint64_t stamp_ = 0;
};

TreeFileSize Tree::load(const std::filesystem::path& path, const TreeSettings& settings) {
  std::lock_guard lock(mutex_);
  if (batches_in_flight_ > 0) throw std::logic_error("no tree can be loaded while a batch is in flight");
  if (!(move_rules_ == MoveRules()))
    throw std::invalid_argument("no tree can be loaded with restricted moves");
  compare(read_tree_file_header(path).settings, settings);
  FileReader reader(path);
  const TreeFileHeader header = take_header(reader);
  if (header.granules > arena_.capacity_bytes() / Arena::kGranuleBytes) {
    throw std::invalid_argument("the tree needs " +
                                std::to_string((header.granules * Arena::kGranuleBytes >> 20) + 1) +
                                " MB, and RamLimitMb allows " + std::to_string(params_.tree_bytes >> 20));
  }
  reset_root();
  arena_.clear();
  root_moves_.clear();
  root_noise_.reset();
  try {
    const uint64_t handed_out = arena_.handed_out_bytes() + header.granules * Arena::kGranuleBytes;
    root_ = TreeLoader(arena_, errors_, reader, header, epoch_after(handed_out)).load();
  } catch (...) {
    reset_root();
    reset_counters();
    update_root_edges();
    throw;
  }
  game_ = header.game;
  history_ = header.game.history;
  third_repetitions_ = header.third_repetitions;
  edges_before_noise_ = header.edges_before_noise;
  reset_counters();
  rank_root_moves();
  update_root_edges();
  return {header.visits, header.nodes, reader.bytes()};
}

}  // namespace wavefront::tree
