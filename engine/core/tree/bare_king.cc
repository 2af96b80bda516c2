// SPDX-License-Identifier: GPL-3.0-or-later
// The analysis handles all squares of the bare king at once, as the bits of a mask. A placing is a square of
// the strong king and of its pieces. For each placing there is a mask of the bare king's squares from which
// it is mated within N moves (lost) and one of those from which the strong side, to move, mates (won).
// Mirroring brings the strong king to one of ten squares.

#include "tree/bare_king.h"

#include <array>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "chess/attacks.h"

namespace wavefront::tree {
namespace {

constexpr uint8_t kNoMate = 255;
constexpr int kKingSquares = 10;

// The reflections that bring a king to the triangle a1-d1-d4.
struct Reflection {
  bool files, ranks, diagonal;

  explicit Reflection(Square king) : files(file_of(king) > 3), ranks(rank_of(king) > 3), diagonal(false) {
    const Square near = (*this)(king);
    diagonal = rank_of(near) > file_of(near);
  }
  Square operator()(Square square) const {
    if (square == kNoSquare) return kNoSquare;
    square ^= (files ? 7 : 0) ^ (ranks ? 56 : 0);
    return diagonal ? make_square(rank_of(square), file_of(square)) : square;
  }
  // Returns a reflected set as it was.
  Bitboard undo(Bitboard set) const {
    if (diagonal) set = mirror_ranks(mirror_files(transpose(set)));
    if (ranks) set = mirror_ranks(set);
    return files ? mirror_files(set) : set;
  }
};

Bitboard attacks_of(PieceType piece, Square from, Bitboard occupied) {
  switch (piece) {
    case kKnight:
      return knight_attacks(from);
    case kBishop:
      return bishop_attacks(from, occupied);
    case kRook:
      return rook_attacks(from, occupied);
    case kQueen:
      return bishop_attacks(from, occupied) | rook_attacks(from, occupied);
    default:
      return king_attacks(from);
  }
}

// Returns the squares that a king on some square of the set attacks.
Bitboard next_to(Bitboard set) {
  const Bitboard sides = shift<1>(set) | shift<-1>(set), row = set | sides;
  return sides | shift<8>(row) | shift<-8>(row);
}

// The strong side's men. second: kNoSquare with one piece.
struct Placing {
  Square king, first, second;

  Bitboard pieces() const { return bit(first) | (second == kNoSquare ? 0 : bit(second)); }
  Bitboard men() const { return bit(king) | pieces(); }
};

class Analysis {
 public:
  // second: kNoPiece with one piece.
  Analysis(PieceType first, PieceType second) : types_{first, second}, seconds_(second == kNoPiece ? 1 : 64) {
    const auto placings = static_cast<size_t>(kKingSquares * 64 * seconds_);
    plies_.assign(64 * placings, kNoMate);
    std::vector<Bitboard> lost(placings), won(placings);
    bool any = true;
    for (int plies = 0; any && plies < kNoMate; plies += 2) {
      any = false;
      each([&](const Placing& placing, size_t index) {
        Bitboard fresh = mated(placing, won[index]) & ~lost[index];
        lost[index] |= fresh;
        any |= fresh != 0;
        while (fresh)
          plies_[64 * index + static_cast<size_t>(pop_first(fresh))] = static_cast<uint8_t>(plies);
      });
      each([&](const Placing& placing, size_t index) { won[index] |= mating(placing, lost); });
    }
  }

  std::optional<int> plies(const Placing& placing, Square bare) const {
    const Reflection reflection(placing.king);
    const uint8_t plies = plies_[64 * index_of(placing) + static_cast<size_t>(reflection(bare))];
    return plies == kNoMate ? std::nullopt : std::optional<int>(plies);
  }

 private:
  // Calls do(placing, index) for every placing of the strong king's ten squares.
  template <typename Do>
  void each(Do&& act) const {
    for (Square king = 0; king < 28; ++king) {
      if (rank_of(king) > file_of(king) || file_of(king) > 3) continue;
      for (Square first = 0; first < 64; ++first) {
        for (int i = 0; i < seconds_; ++i) {
          const Placing placing{king, first, seconds_ == 1 ? kNoSquare : i};
          if (count(placing.men()) == (seconds_ == 1 ? 2 : 3)) act(placing, index_of(placing));
        }
      }
    }
  }

  size_t index_of(const Placing& placing) const {
    const Reflection reflection(placing.king);
    const Square king = reflection(placing.king);
    const int row = rank_of(king), in_triangle = row * 4 - row * (row + 1) / 2 + file_of(king);
    const int second = seconds_ == 1 ? 0 : reflection(placing.second);
    return static_cast<size_t>((in_triangle * 64 + reflection(placing.first)) * seconds_ + second);
  }

  // Returns the squares on which the bare king, to move, is mated or has only moves to squares in `won`.
  Bitboard mated(const Placing& placing, Bitboard won) const {
    Bitboard attacked = king_attacks(placing.king) | attacks_of(types_[0], placing.first, placing.men());
    if (types_[1] != kNoPiece) attacked |= attacks_of(types_[1], placing.second, placing.men());
    const Bitboard can_stay = ~next_to(~attacked & ~won);  // no move leads out of `won`
    const Bitboard no_stalemate = attacked | next_to(~attacked);
    return can_stay & no_stalemate & ~placing.men() & ~king_attacks(placing.king);
  }

  // Returns the squares of the bare king on which the strong side has a move to a position in `lost`.
  Bitboard mating(const Placing& placing, const std::vector<Bitboard>& lost) const {
    Bitboard found = 0;
    for (Bitboard left = king_attacks(placing.king) & ~placing.pieces(); left;) {
      const Placing after{pop_first(left), placing.first, placing.second};
      found |= Reflection(after.king).undo(lost[index_of(after)]);
    }
    for (const bool is_first : {true, false}) {
      const PieceType type = types_[is_first ? 0 : 1];
      if (type == kNoPiece) break;
      const Square from = is_first ? placing.first : placing.second;
      for (Bitboard left = attacks_of(type, from, placing.men()) & ~placing.men(); left;) {
        const Square to = pop_first(left);
        const Placing after =
            is_first ? Placing{placing.king, to, placing.second} : Placing{placing.king, placing.first, to};
        found |= lost[index_of(after)] & ~between(from, to);
      }
    }
    return found & ~placing.men();  // A piece that moved away left its square to the bare king.
  }

  PieceType types_[2];
  int seconds_;
  std::vector<uint8_t> plies_;  // by placing and square of the bare king, which is to move
};

const Analysis& analysis_of(PieceType first, PieceType second) {
  struct Entry {
    std::once_flag once;
    std::unique_ptr<const Analysis> analysis;
  };
  static std::array<std::array<Entry, kNoPiece + 1>, kNoPiece + 1> entries;
  Entry& entry = entries[first][second];
  std::call_once(entry.once, [&] { entry.analysis = std::make_unique<const Analysis>(first, second); });
  return *entry.analysis;
}

}  // namespace

std::optional<int> plies_to_mate_of_bare_king(const Position& position) {
  const Color bare = position.side_to_move(), strong = ~bare;
  const Bitboard kings = position.pieces(kKing), pieces = position.occupied() & ~kings;
  const int men = count(pieces);
  if (men < 1 || men > 2 || (pieces & position.pieces(bare)) || position.pieces(kPawn)) return std::nullopt;
  Bitboard left = pieces;
  Square first = pop_first(left), second = left ? pop_first(left) : kNoSquare;
  // One order of two pieces is enough.
  if (second != kNoSquare && position.piece_on(first) < position.piece_on(second)) std::swap(first, second);
  const PieceType type = position.piece_on(first);
  const PieceType other = second == kNoSquare ? kNoPiece : position.piece_on(second);
  return analysis_of(type, other)
      .plies({position.king_square(strong), first, second}, position.king_square(bare));
}

}  // namespace wavefront::tree
