// SPDX-License-Identifier: GPL-3.0-or-later
#include "syzygy/numbering.h"

#include <algorithm>
#include <utility>

#include "syzygy/byte_reader.h"

namespace wavefront::syzygy {
namespace {

// -- counting -----------------------------------------------------------------------------------------------

struct Binomials {
  std::array<std::array<uint64_t, kMostMen>, 65> choose{};

  constexpr Binomials() {
    for (size_t n = 0; n < choose.size(); ++n) {
      choose[n][0] = 1;
      for (size_t k = 1; k < choose[n].size() && n > 0; ++k) {
        choose[n][k] = choose[n - 1][k - 1] + choose[n - 1][k];
      }
    }
  }
};
constexpr Binomials kBinomials;

// Placements of k men on n squares.
constexpr uint64_t choose(int n, int k) {
  return kBinomials.choose[static_cast<size_t>(n)][static_cast<size_t>(k)];
}

// Returns the number of a set of squares among sets of its size. `taken` and the first `left_out` squares are
// excluded; the set must not contain them.
uint64_t combination(Bitboard set, Bitboard taken, int left_out) {
  uint64_t number = 0;
  for (int nth = 1; set != 0; ++nth) {
    const Square square = pop_first(set);
    number += choose(square - left_out - count(taken & (bit(square) - 1)), nth);
  }
  return number;
}

// -- the board without its symmetry -------------------------------------------------------------------------

constexpr int above_diagonal(Square square) {
  return rank_of(square) - file_of(square);
}
constexpr Square reflect_in_diagonal(Square square) {
  return make_square(rank_of(square), file_of(square));
}

// Returns the number of a square below the diagonal, by ranks, in the corner of `width` squares at a1 or h1.
constexpr int below_diagonal_number(Square square, int width) {
  const int rank = rank_of(square);
  return rank * (2 * width - 1 - rank) / 2 + file_of(square) - rank - 1;
}
constexpr int below_in_triangle(Square square) {
  return below_diagonal_number(square, 4);
}
constexpr int below_on_board(Square square) {
  return below_diagonal_number(square, 8);
}

constexpr uint64_t kBelowInTriangle = 6;  // squares of a1-d1-d4 below the diagonal
constexpr uint64_t kDiagonalInTriangle = 4;
constexpr uint64_t kBelowOnBoard = 28;

// -- leading groups -----------------------------------------------------------------------------------------

// Three different men. Placements are ordered: first man off the diagonal, then second man off it, then third
// man off it, then all three on it.
uint64_t three_men_number(Square a, Square b, Square c) {
  const int second = b - (b > a);
  const int third = c - (c > a) - (c > b);
  const int diagonal_b = rank_of(b) - (b > a);
  const int diagonal_c = rank_of(c) - (c > a) - (c > b);
  const auto digits = [](int x, int base_y, int y, int base_z, int z) {
    return static_cast<uint64_t>((x * base_y + y) * base_z + z);
  };
  uint64_t before = 0;
  if (above_diagonal(a) != 0) return digits(below_in_triangle(a), 63, second, 62, third);
  before += kBelowInTriangle * 63 * 62;
  if (above_diagonal(b) != 0) return before + digits(rank_of(a), 28, below_on_board(b), 62, third);
  before += kDiagonalInTriangle * kBelowOnBoard * 62;
  if (above_diagonal(c) != 0) return before + digits(rank_of(a), 7, diagonal_b, 28, below_on_board(c));
  before += kDiagonalInTriangle * 7 * kBelowOnBoard;
  return before + digits(rank_of(a), 7, diagonal_b, 6, diagonal_c);
}
constexpr uint64_t kThreeMenPlacements =
    kBelowInTriangle * 63 * 62 + kDiagonalInTriangle * (kBelowOnBoard * 62 + 7 * kBelowOnBoard + 7 * 6);

// Two kings that do not touch. The first king iterates over the triangle, squares below the diagonal before
// those on it, and the second over the board. Pairs on the diagonal come last.
struct KingPairs {
  std::array<std::array<uint16_t, 64>, 64> number{};  // [first][second]; only possible pairs
  int count = 0;

  constexpr KingPairs() {
    for (const int pass : {0, 1, 2}) {
      for (Square first = 0; first < 32; ++first) {
        if (file_of(first) > 3 || above_diagonal(first) > 0) continue;
        const bool on_diagonal = above_diagonal(first) == 0;
        if (on_diagonal != (pass > 0)) continue;
        for (Square second = 0; second < 64; ++second) {
          if (on_diagonal && above_diagonal(second) > 0) continue;
          if (on_diagonal && (above_diagonal(second) == 0) != (pass == 2)) continue;
          if (!touch(first, second)) number[first][second] = static_cast<uint16_t>(count++);
        }
      }
    }
  }
  static constexpr bool touch(Square a, Square b) {
    const int files = file_of(a) - file_of(b), ranks = rank_of(a) - rank_of(b);
    return files >= -1 && files <= 1 && ranks >= -1 && ranks <= 1;
  }
};
constexpr KingPairs kKingPairs;
static_assert(kKingPairs.count == 462);

// Precedence of a pawn as the leading one: 47 for a2, 46 for h2, 45 for a3, 44 for h3 … 35 for b2 … 0 for e7.
constexpr int pawn_precedence(Square square) {
  const int file = file_of(square);
  const bool right = file > 3;
  return 47 - 12 * (right ? 7 - file : file) - 2 * (rank_of(square) - 1) - (right ? 1 : 0);
}

// Placements of some pawns of one colour by their leading one: first number for each of its squares, among
// those with it on the same file, and number of placements per file.
struct LeadingPawns {
  static constexpr size_t kMostPawns = kMostMen - 2;
  std::array<std::array<uint64_t, 64>, kMostPawns + 1> begin{};  // [pawns][square of the leading one]
  std::array<std::array<uint64_t, 4>, kMostPawns + 1> size{};    // [pawns][file]

  constexpr LeadingPawns() {
    for (size_t pawns = 1; pawns <= kMostPawns; ++pawns) {
      for (int file = 0; file < 4; ++file) {
        uint64_t before = 0;
        for (int rank = 1; rank < 7; ++rank) {
          const Square square = make_square(file, rank);
          begin[pawns][square] = before;
          // The others have any lower precedence.
          before += choose(pawn_precedence(square), static_cast<int>(pawns) - 1);
        }
        size[pawns][file] = before;
      }
    }
  }
};
constexpr LeadingPawns kLeadingPawns;

uint64_t leading_pawns_number(std::span<Square> pawns) {
  std::sort(pawns.begin() + 1, pawns.end(),
            [](Square a, Square b) { return pawn_precedence(a) < pawn_precedence(b); });
  uint64_t number = kLeadingPawns.begin[pawns.size()][static_cast<size_t>(pawns[0])];
  for (size_t i = 1; i < pawns.size(); ++i) {
    number += choose(pawn_precedence(pawns[i]), static_cast<int>(i));
  }
  return number;
}

// -- the men of a file --------------------------------------------------------------------------------------

Kind kind_of_code(uint8_t code) {
  const int type = (code & 7) - 1;
  if (type < kPawn || type > kKing) throw DamagedTable("it names an unknown man");
  return {code & 8 ? kBlack : kWhite, static_cast<PieceType>(type), 1};
}

std::vector<Kind> kinds_of_codes(std::span<const uint8_t> codes) {
  std::vector<Kind> kinds;
  for (const uint8_t code : codes) {
    const Kind kind = kind_of_code(code);
    if (!kinds.empty() && kinds.back().color == kind.color && kinds.back().type == kind.type) {
      ++kinds.back().count;
      continue;
    }
    for (const Kind& earlier : kinds) {
      if (earlier.color == kind.color && earlier.type == kind.type) {
        throw DamagedTable("its men are out of order");
      }
    }
    kinds.push_back(kind);
  }
  for (const Color color : {kWhite, kBlack}) {
    if (std::find(kinds.begin(), kinds.end(), Kind{color, kKing, 1}) == kinds.end()) {
      throw DamagedTable("it has not one king on each side");
    }
  }
  return kinds;
}

}  // namespace

Numbering::Numbering(std::span<const uint8_t> codes, int leading_digit, int pawns_digit, int pawn_file)
    : kinds_(kinds_of_codes(codes)) {
  const auto is_pawn = [](const Kind& kind) { return kind.type == kPawn; };
  has_pawns_ = std::any_of(kinds_.begin(), kinds_.end(), is_pawn);
  // Number of placements of each group, in the order of the men.
  std::vector<uint64_t> placements;
  const int leading = has_pawns_ ? leading_pawns() : leading_pieces();
  groups_.push_back({leading, 0});
  if (has_pawns_) {
    placements.push_back(kLeadingPawns.size[static_cast<size_t>(leading)][static_cast<size_t>(pawn_file)]);
  } else {
    placements.push_back(leading == 3 ? kThreeMenPlacements : static_cast<uint64_t>(kKingPairs.count));
  }
  size_t next_kind = has_pawns_ ? 1 : static_cast<size_t>(leading);
  if (has_pawns_ && is_pawn(kinds_[1])) {
    second_pawns_ = kinds_[next_kind++].count;
    groups_.push_back({second_pawns_, 0});
    placements.push_back(choose(48 - leading, second_pawns_));
  }
  for (int free = 64 - leading - second_pawns_; next_kind < kinds_.size(); ++next_kind) {
    const int men = kinds_[next_kind].count;
    groups_.push_back({men, 0});
    placements.push_back(choose(free, men));
    free -= men;
  }

  // Groups without a given digit get the other digits in order.
  const int digits = static_cast<int>(groups_.size());
  if (second_pawns_ == 0) pawns_digit = -1;
  if (leading_digit >= digits || pawns_digit >= digits || pawns_digit == leading_digit) {
    throw DamagedTable("its groups are out of order");
  }
  size_t next_group = second_pawns_ > 0 ? 2 : 1;
  for (int digit = 0; digit < digits; ++digit) {
    const size_t group = digit == leading_digit ? 0 : digit == pawns_digit ? 1 : next_group++;
    groups_[group].factor = size_;
    size_ *= placements[group];
  }
}

// Returns the number of leading men without pawns. They must be the first ones, each single of its kind.
int Numbering::leading_pieces() const {
  const auto is_single = [](const Kind& kind) { return kind.count == 1; };
  const int leading = std::count_if(kinds_.begin(), kinds_.end(), is_single) >= 3 ? 3 : 2;
  const bool singles_first = std::all_of(kinds_.begin(), kinds_.begin() + leading, is_single);
  const bool kings_first = kinds_[0].type == kKing && kinds_[1].type == kKing;
  if (!singles_first || (leading == 2 && !kings_first)) throw DamagedTable("its men are out of order");
  return leading;
}

// Returns the number of leading pawns. They must be the first men, followed by all other pawns.
int Numbering::leading_pawns() const {
  const bool pawns_first =
      std::is_partitioned(kinds_.begin(), kinds_.end(), [](const Kind& kind) { return kind.type == kPawn; });
  if (!pawns_first) throw DamagedTable("its men are out of order");
  return kinds_[0].count;
}

Material Numbering::material() const {
  Material material;
  for (const Kind& kind : kinds_) {
    if (kind.type != kKing) material.counts[kind.color][kind.type] = static_cast<uint8_t>(kind.count);
  }
  return material;
}

uint64_t Numbering::leading_number(std::span<Square> squares) const {
  const auto apply = [&](auto reflect) {
    for (Square& square : squares) square = reflect(square);
  };
  const auto leading = squares.first(static_cast<size_t>(leading_count()));
  if (file_of(squares[0]) > 3) apply([](Square square) { return square ^ 7; });
  if (has_pawns_) return leading_pawns_number(leading);
  if (rank_of(squares[0]) > 3) apply([](Square square) { return square ^ 56; });
  for (const Square square : leading) {
    if (above_diagonal(square) == 0) continue;
    if (above_diagonal(square) > 0) apply(reflect_in_diagonal);
    break;
  }
  if (leading.size() == 3) return three_men_number(leading[0], leading[1], leading[2]);
  return kKingPairs.number[static_cast<size_t>(leading[0])][static_cast<size_t>(leading[1])];
}

uint64_t Numbering::number(std::span<Square> squares) const {
  uint64_t number = 0;
  Bitboard taken = 0;
  size_t first = 0;
  for (size_t i = 0; i < groups_.size(); ++i) {
    uint64_t digit = i == 0 ? leading_number(squares) : 0;
    Bitboard set = 0;
    for (const Square square : squares.subspan(first, static_cast<size_t>(groups_[i].count)))
      set |= bit(square);
    if (i > 0) digit = combination(set, taken, i == 1 && second_pawns_ > 0 ? 8 : 0);
    number += digit * groups_[i].factor;
    taken |= set;
    first += static_cast<size_t>(groups_[i].count);
  }
  return number;
}

int lead_with_pawn(std::span<Square> pawns) {
  const auto leading = std::max_element(
      pawns.begin(), pawns.end(), [](Square a, Square b) { return pawn_precedence(a) < pawn_precedence(b); });
  std::swap(*leading, pawns.front());
  const int file = file_of(pawns.front());
  return std::min(file, 7 - file);
}

}  // namespace wavefront::syzygy
