// SPDX-License-Identifier: GPL-3.0-or-later
// The file of a saved tree. All numbers are little endian.
//
//   magic       8 bytes: 89 "WFTREE" 0A
//   version     32 bits: 2
//   settings    32 bits: number; then a name and a value each: texts with a 32-bit length
//   note        text of the caller
//   start       text: FEN of the game's start; 8 bits: Chess960
//   moves       32 bits: number; then 16 bits each, as in chess/move.h
//   repeated    8 bits: 1 if third repetitions occurred (Tree::third_repetitions_)
//   size        64 bits each: nodes, granules of the arena
//   visits      32 bits: of the root
//   noise       8 bits: number; then the root's edges before noise, 32 bits each
//   nodes       in preorder: the root, then the nodes below each of its children in turn
//   checksum    64 bits, of everything before (file_stream.h)
//
//   A node: wl_sum 64 bits, d 32, m 32, visits 32; state 3 bits and age in epochs 5 bits; bounds 8 bits
//   (lower + 1: 2 bits, upper + 1: 2, by_tables, can_repeat); own 16 bits, spread 16.
//   An expanded node: number of edges 8 bits, child slots 8 bits, edges 32 bits each; its BiasRecord 64
//   bits; a bit for each slot that has a node. A two-fold repetition: repeated_after 32 bits.
//
// The order gives the structure, so the file has no references that could be wrong. Loading plays every move
// on a board, and accepts the edges of a node only if they are the legal moves.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "chess/game.h"
#include "tree/node.h"

namespace wavefront::tree {

class FileReader;

// Names and values of what the values of a tree depend on: network and options.
using TreeSettings = std::vector<std::pair<std::string, std::string>>;

struct TreeFileHeader {
  TreeSettings settings;
  std::string note;
  Game game;
  bool third_repetitions = false;
  uint64_t nodes = 0;
  uint64_t granules = 0;
  uint32_t visits = 0;
  std::vector<Edge> edges_before_noise;
};

struct TreeFileSize {
  uint32_t visits;  // of the root
  uint64_t nodes;
  uint64_t bytes;  // of the file
};

// Returns the header of a file. Verifies the checksum of the whole file first. Throws std::invalid_argument
// for a file that is foreign, damaged or of another version.
TreeFileHeader read_tree_file_header(const std::filesystem::path& path);

// The same for a reader at the beginning of a file, without the checksum.
TreeFileHeader take_header(FileReader& reader);

inline constexpr uint64_t kTreeFileMagic = 0x0a'45'45'52'54'46'57'89;  // "\x89WFTREE\n"
inline constexpr uint32_t kTreeFileVersion = 2;

// Maximum plies from the root to a node. The search visits nodes recursively.
inline constexpr size_t kMostTreeFilePlies = 4096;

}  // namespace wavefront::tree
