// SPDX-License-Identifier: GPL-3.0-or-later
// One table file, with the values of positions with its material.
//
// A WDL file has the values of both sides to move, or of one if the sides have the same men. A DTZ file has
// those of one side. With pawns, there is a part for each file a to d of the leading pawn.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "chess/position.h"
#include "syzygy/compressed_values.h"
#include "syzygy/mapped_file.h"
#include "syzygy/material.h"
#include "syzygy/numbering.h"

namespace wavefront::syzygy {

// A position's value for the side to move, with a 50-move clock of 0. Cursed wins and blessed losses are
// draws because of the 50-move rule.
enum class Wdl : int8_t { kLoss = -2, kBlessedLoss = -1, kDraw = 0, kCursedWin = 1, kWin = 2 };

inline Wdl operator-(Wdl wdl) {
  return static_cast<Wdl>(-static_cast<int>(wdl));
}

class TableFile {
 public:
  enum class Metric { kWdl, kDtz };

  // Reads the headers, and checks that the file has all values. material: from the file's name. Throws
  // DamagedTable, or std::runtime_error if the file is unreadable.
  TableFile(const std::filesystem::path& path, const Material& material, Metric metric);

  // Returns the stored value of a position with this material, without castling rights. It ignores captures
  // and en passant. Returns nothing if the file is damaged.
  std::optional<Wdl> wdl(const Position& position) const;

  struct Distance {
    bool known;  // false: the file only has the other side's distances
    int plies;   // to the next capture or pawn move, or mate: 1 or more
  };
  // Returns the stored distance of a position that is not drawn. wdl: its value.
  std::optional<Distance> distance(const Position& position, Wdl wdl) const;

 private:
  // The values of one side to move, with the leading pawn on one file.
  struct Part {
    Numbering numbering;
    CompressedValues values;
    // DTZ: stored numbers are indices of lists, one each for wins, losses, cursed wins and blessed losses.
    struct List {
      const uint8_t* entries;
      uint32_t size;
    };
    std::vector<List> lists;
  };
  // The place of a position in the file.
  struct Place {
    const Part* part;
    int side;  // to move, with the file's colours: 0 White
    uint64_t number;
  };

  void read_header(ByteReader& reader, const Material& material);
  void read_lists(ByteReader& reader);
  Place find(const Position& position) const;

  MappedFile file_;
  Metric metric_;
  Material material_;  // with the file's colours
  bool has_pawns_ = false;
  int sides_ = 1;
  std::vector<Part> parts_;  // [file of the leading pawn][side]
};

}  // namespace wavefront::syzygy
