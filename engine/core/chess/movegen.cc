// SPDX-License-Identifier: GPL-3.0-or-later
// Legal move generation.
//
// All generated moves are legal without playing them. The generator first computes
//
//   danger        squares that the enemy attacks, through our king (where it must not step),
//   targets       squares that end a single check: the checker and the squares between; all squares without
//                 a check,
//   pins          squares from our king to each pinning piece, on ranks and files (straight) and on
//                 diagonals.
//
// A piece pinned on a straight line keeps only its moves on `straight_pins`, and likewise on diagonals. Pin
// lines of one kind through the king are parallel or at right angles. So no move leads from one to another,
// and one mask for all lines suffices. En passant removes two pawns at once and is tested separately.
#include <initializer_list>

#include "chess/attacks.h"
#include "chess/position.h"

namespace wavefront::chess {

namespace {

// Receives the moves. Perft's counter does not store them.
struct ListSink {
  MoveList& list;

  void add(Move move) { list.push(move); }
  void add_all(Square from, Bitboard targets) {
    while (targets) list.push(Move(from, pop_first(targets)));
  }
  template <int Delta>
  void add_pawns(Bitboard targets) {
    while (targets) {
      const Square to = pop_first(targets);
      list.push(Move(to - Delta, to));
    }
  }
  template <int Delta>
  void add_promotions(Bitboard targets) {
    while (targets) {
      const Square to = pop_first(targets);
      for (const PieceType piece : {kQueen, kRook, kBishop, kKnight}) list.push(Move(to - Delta, to, piece));
    }
  }
};

struct CountSink {
  int total = 0;

  void add(Move) { ++total; }
  void add_all(Square, Bitboard targets) { total += count(targets); }
  template <int Delta>
  void add_pawns(Bitboard targets) {
    total += count(targets);
  }
  template <int Delta>
  void add_promotions(Bitboard targets) {
    total += 4 * count(targets);
  }
};

Bitboard knight_attacks_of_set(Bitboard knights) {
  const Bitboard one = ((knights << 1) & ~kFileA) | ((knights >> 1) & ~kFileH);
  const Bitboard two = ((knights << 2) & ~(kFileA * 3)) | ((knights >> 2) & ~(kFileA * 0xC0));
  return one << 16 | one >> 16 | two << 8 | two >> 8;
}

template <Color Us>
struct PawnSteps {
  static constexpr int kForward = Us == kWhite ? 8 : -8;
  static constexpr int kWest = kForward - 1;
  static constexpr int kEast = kForward + 1;
  static constexpr Bitboard kThirdRank = rank_mask(Us == kWhite ? 2 : 5);
  static constexpr Bitboard kLastRank = rank_mask(Us == kWhite ? 7 : 0);
};

}  // namespace

// Generates all moves of a position into a sink. Its steps share the masks described above.
template <Color Us, class Sink>
class MoveGenerator {
 public:
  MoveGenerator(const Position& position, Sink& sink)
      : position_(position),
        sink_(sink),
        ours_(position.by_color_[Us]),
        theirs_(position.by_color_[kThem]),
        occupied_(ours_ | theirs_),
        straight_movers_(pieces(kRook) | pieces(kQueen)),
        diagonal_movers_(pieces(kBishop) | pieces(kQueen)),
        king_(first_square(pieces(kKing) & ours_)) {}

  void generate() {
    find_danger();
    sink_.add_all(king_, king_attacks(king_) & ~ours_ & ~danger_);
    find_checkers_and_pins();
    if (!at_most_one(checkers_)) return;  // Only the king can answer two checks.
    if (!checkers_) castling_moves();
    piece_moves();
    pawn_moves();
    en_passant_moves();
  }

 private:
  static constexpr Color kThem = ~Us;
  using Step = PawnSteps<Us>;
  using TheirStep = PawnSteps<kThem>;

  Bitboard pieces(PieceType type) const { return position_.by_type_[type]; }

  void find_danger() {
    const Bitboard their_pawns = pieces(kPawn) & theirs_;
    const Bitboard seen_through = occupied_ ^ bit(king_);
    danger_ = shift<TheirStep::kWest>(their_pawns) | shift<TheirStep::kEast>(their_pawns) |
              knight_attacks_of_set(pieces(kKnight) & theirs_) |
              king_attacks(first_square(pieces(kKing) & theirs_));
    for (Bitboard set = straight_movers_ & theirs_; set;) {
      danger_ |= rook_attacks(pop_first(set), seen_through);
    }
    for (Bitboard set = diagonal_movers_ & theirs_; set;) {
      danger_ |= bishop_attacks(pop_first(set), seen_through);
    }
  }

  void find_checkers_and_pins() {
    checkers_ = (knight_attacks(king_) & pieces(kKnight) & theirs_) |
                (pawn_attacks(Us, king_) & pieces(kPawn) & theirs_);
    targets_ = checkers_ ? checkers_ : kAllSquares;
    straight_pins_ = look_along(g_attacks.rook_rays[king_] & straight_movers_ & theirs_);
    diagonal_pins_ = look_along(g_attacks.bishop_rays[king_] & diagonal_movers_ & theirs_);
  }

  // snipers: enemy pieces that could take the king on an empty board. Adds those that give check to the
  // checkers, and returns the lines of those that pin.
  Bitboard look_along(Bitboard snipers) {
    Bitboard pins = 0;
    while (snipers) {
      const Square sniper = pop_first(snipers);
      const Bitboard path = between(king_, sniper);
      const Bitboard blockers = path & occupied_;
      if (!blockers) {
        checkers_ |= bit(sniper);
        targets_ = path | bit(sniper);
      } else if (at_most_one(blockers) && (blockers & ours_)) {
        pins |= path | bit(sniper);
      }
    }
    return pins;
  }

  void castling_moves() {
    for (Bitboard rooks = position_.castling_rooks_ & ours_; rooks;) {
      const Square rook = pop_first(rooks);
      const bool kingside = rook > king_;
      const Square king_to = castled_king(Us, kingside);
      const Square rook_to = castled_rook(Us, kingside);
      const Bitboard king_path = between(king_, king_to) | bit(king_to);
      const Bitboard paths = king_path | between(king_, rook) | between(rook, rook_to) | bit(rook_to);
      const Bitboard others = occupied_ ^ bit(king_) ^ bit(rook);
      // Castling with a rook pinned on the first rank (Chess960 only) would uncover the king.
      if (!(paths & others) && !(king_path & danger_) && !(bit(rook) & straight_pins_)) {
        sink_.add(Move(king_, rook));
      }
    }
  }

  void piece_moves() {
    const Bitboard allowed = targets_ & ~ours_;
    for (Bitboard set = pieces(kKnight) & ours_ & ~(straight_pins_ | diagonal_pins_); set;) {
      const Square from = pop_first(set);
      sink_.add_all(from, knight_attacks(from) & allowed);
    }
    for (Bitboard set = diagonal_movers_ & ours_ & ~straight_pins_; set;) {
      const Square from = pop_first(set);
      Bitboard moves = bishop_attacks(from, occupied_) & allowed;
      if (bit(from) & diagonal_pins_) moves &= diagonal_pins_;
      sink_.add_all(from, moves);
    }
    for (Bitboard set = straight_movers_ & ours_ & ~diagonal_pins_; set;) {
      const Square from = pop_first(set);
      Bitboard moves = rook_attacks(from, occupied_) & allowed;
      if (bit(from) & straight_pins_) moves &= straight_pins_;
      sink_.add_all(from, moves);
    }
  }

  // Target squares of pawn steps: any for free pawns, those on the line for pinned ones.
  template <int Delta>
  static Bitboard stepped(Bitboard pawns, Bitboard pins) {
    return shift<Delta>(pawns & ~pins) | (shift<Delta>(pawns & pins) & pins);
  }

  void pawn_moves() {
    const Bitboard pawns = pieces(kPawn) & ours_;
    const Bitboard takers = pawns & ~straight_pins_;
    const Bitboard pushed = stepped<Step::kForward>(pawns & ~diagonal_pins_, straight_pins_) & ~occupied_;
    const Bitboard pushed_twice = shift<Step::kForward>(pushed & Step::kThirdRank) & ~occupied_ & targets_;
    const Bitboard pushed_once = pushed & targets_;
    const Bitboard west = stepped<Step::kWest>(takers, diagonal_pins_) & theirs_ & targets_;
    const Bitboard east = stepped<Step::kEast>(takers, diagonal_pins_) & theirs_ & targets_;
    sink_.template add_pawns<Step::kForward>(pushed_once & ~Step::kLastRank);
    sink_.template add_pawns<2 * Step::kForward>(pushed_twice);
    sink_.template add_pawns<Step::kWest>(west & ~Step::kLastRank);
    sink_.template add_pawns<Step::kEast>(east & ~Step::kLastRank);
    if ((pushed_once | west | east) & Step::kLastRank) {
      sink_.template add_promotions<Step::kForward>(pushed_once & Step::kLastRank);
      sink_.template add_promotions<Step::kWest>(west & Step::kLastRank);
      sink_.template add_promotions<Step::kEast>(east & Step::kLastRank);
    }
  }

  void en_passant_moves() {
    const Square to = position_.en_passant_;
    if (to == kNoSquare) return;
    const Bitboard captured = bit(to ^ 8);
    for (Bitboard set = pawn_attacks(kThem, to) & pieces(kPawn) & ours_; set;) {
      const Square from = pop_first(set);
      const Bitboard after = (occupied_ ^ bit(from) ^ captured) | bit(to);
      if (!(position_.attackers(king_, kThem, after) & ~captured)) sink_.add(Move(from, to));
    }
  }

  const Position& position_;
  Sink& sink_;
  const Bitboard ours_;
  const Bitboard theirs_;
  const Bitboard occupied_;
  const Bitboard straight_movers_;
  const Bitboard diagonal_movers_;
  const Square king_;

  Bitboard danger_ = 0;
  Bitboard checkers_ = 0;
  Bitboard targets_ = 0;
  Bitboard straight_pins_ = 0;
  Bitboard diagonal_pins_ = 0;
};

template <class Sink>
void Position::generate(Sink& sink) const {
  if (side_to_move_ == kWhite) {
    MoveGenerator<kWhite, Sink>(*this, sink).generate();
  } else {
    MoveGenerator<kBlack, Sink>(*this, sink).generate();
  }
}

void Position::legal_moves(MoveList& moves) const {
  ListSink sink{moves};
  generate(sink);
}

int Position::legal_move_count() const {
  CountSink sink;
  generate(sink);
  return sink.total;
}

}  // namespace wavefront::chess
