// SPDX-License-Identifier: GPL-3.0-or-later
// Reading the header of a saved tree.

#include <stdexcept>

#include "chess/fen.h"
#include "tree/file.h"
#include "tree/file_stream.h"

namespace wavefront::tree {
namespace {

constexpr size_t kMostText = size_t{1} << 16;
constexpr uint32_t kMostSettings = 256;
constexpr uint32_t kMostMoves = 100'000;

void take_game(FileReader& reader, TreeFileHeader& header) {
  const std::string fen = reader.take_text(kMostText);
  const bool chess960 = reader.take<uint8_t>() != 0;
  Game game(fen, chess960, OpponentCheck::kAllow);
  const uint32_t moves = reader.take<uint32_t>();
  if (moves > kMostMoves) throw std::invalid_argument("the file is damaged: the game is too long");
  for (uint32_t i = 0; i < moves; ++i) {
    const Move move = Move::from_raw(reader.take<uint16_t>());
    MoveList legal;
    if (game.playable()) game.current().legal_moves(legal);
    if (!legal.contains(move)) throw std::invalid_argument("the file is damaged: the game is not legal");
    game.push(move);
  }
  if (!game.playable()) throw std::invalid_argument("the file is damaged: the position is not legal");
  header.game = std::move(game);
}

}  // namespace

TreeFileHeader take_header(FileReader& reader) {
  if (reader.bytes() < 24 || reader.take<uint64_t>() != kTreeFileMagic) {
    throw std::invalid_argument("this is not a tree of Wavefront");
  }
  if (const uint32_t version = reader.take<uint32_t>(); version != kTreeFileVersion) {
    throw std::invalid_argument("the tree has format " + std::to_string(version) + ", this engine reads " +
                                std::to_string(kTreeFileVersion));
  }
  TreeFileHeader header;
  const uint32_t settings = reader.take<uint32_t>();
  if (settings > kMostSettings) throw std::invalid_argument("the file is damaged: too many settings");
  for (uint32_t i = 0; i < settings; ++i) {
    std::string name = reader.take_text(kMostText);
    header.settings.emplace_back(std::move(name), reader.take_text(kMostText));
  }
  header.note = reader.take_text(kMostText);
  take_game(reader, header);
  header.third_repetitions = reader.take<uint8_t>() != 0;
  header.nodes = reader.take<uint64_t>();
  header.granules = reader.take<uint64_t>();
  header.visits = reader.take<uint32_t>();
  const int edges = reader.take<uint8_t>();
  for (int i = 0; i < edges; ++i) {
    Edge edge;
    edge.word = reader.take<uint32_t>();
    header.edges_before_noise.push_back(edge);
  }
  return header;
}

TreeFileHeader read_tree_file_header(const std::filesystem::path& path) {
  FileReader first(path);
  TreeFileHeader header;
  try {
    header = take_header(first);
  } catch (const std::invalid_argument&) {
    // A foreign file or another version is named as such; otherwise the checksum comes first.
    FileReader again(path);
    if (again.bytes() < 24 || again.take<uint64_t>() != kTreeFileMagic ||
        again.take<uint32_t>() != kTreeFileVersion || again.sum_matches()) {
      throw;
    }
    throw std::invalid_argument("the file is damaged or truncated: its checksum differs");
  }
  if (!first.sum_matches()) {
    throw std::invalid_argument("the file is damaged or truncated: its checksum differs");
  }
  return header;
}

}  // namespace wavefront::tree
