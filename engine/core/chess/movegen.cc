// Legal move generation.
//
// Every generated move is legal at once, with no test by playing it. Before the pieces are visited we know
//   danger     squares that the enemy attacks, seen through our king (where it must not step),
//   targets    squares that end a single check: the checker and the squares between (all squares if not in
//   check), pins       squares from our king to each pinning piece, along ranks and files (straight) and
//   diagonals.
// A piece pinned on a straight line keeps only its moves on `straight_pins`, and so on. No move leads from
// one pin line onto another of the same kind: lines through one king of the same kind are parallel or at
// right angles, so that one mask for all lines suffices. En passant takes two pawns off at once and is tested
// on its own.
#include <initializer_list>

#include "chess/attacks.h"
#include "chess/position.h"

namespace wavefront {

namespace {

// Receives the moves; the counter of perft does without writing them down.
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

template <Color Us, class Sink>
void Position::generate(Sink& sink) const {
  constexpr Color kThem = ~Us;
  using Step = PawnSteps<Us>;
  using TheirStep = PawnSteps<kThem>;

  const Bitboard ours = by_color_[Us];
  const Bitboard theirs = by_color_[kThem];
  const Bitboard occupied = ours | theirs;
  const Bitboard straight_movers = by_type_[kRook] | by_type_[kQueen];
  const Bitboard diagonal_movers = by_type_[kBishop] | by_type_[kQueen];
  const Square king = first_square(by_type_[kKing] & ours);

  const Bitboard their_pawns = by_type_[kPawn] & theirs;
  const Bitboard seen_through = occupied ^ bit(king);
  Bitboard danger = shift<TheirStep::kWest>(their_pawns) | shift<TheirStep::kEast>(their_pawns) |
                    knight_attacks_of_set(by_type_[kKnight] & theirs) |
                    king_attacks(first_square(by_type_[kKing] & theirs));
  for (Bitboard set = straight_movers & theirs; set;) danger |= rook_attacks(pop_first(set), seen_through);
  for (Bitboard set = diagonal_movers & theirs; set;) danger |= bishop_attacks(pop_first(set), seen_through);

  sink.add_all(king, king_attacks(king) & ~ours & ~danger);

  Bitboard checkers =
      (knight_attacks(king) & by_type_[kKnight] & theirs) | (pawn_attacks(Us, king) & their_pawns);
  Bitboard targets = kAllSquares;
  if (checkers) targets = checkers;
  const auto look_along = [&](Bitboard snipers) {
    Bitboard pins = 0;
    while (snipers) {
      const Square sniper = pop_first(snipers);
      const Bitboard path = between(king, sniper);
      const Bitboard blockers = path & occupied;
      if (!blockers) {
        checkers |= bit(sniper);
        targets = path | bit(sniper);
      } else if (at_most_one(blockers) && (blockers & ours)) {
        pins |= path | bit(sniper);
      }
    }
    return pins;
  };
  const Bitboard straight_pins = look_along(g_attacks.rook_rays[king] & straight_movers & theirs);
  const Bitboard diagonal_pins = look_along(g_attacks.bishop_rays[king] & diagonal_movers & theirs);
  const Bitboard pins = straight_pins | diagonal_pins;

  if (checkers) {
    if (!at_most_one(checkers)) return;
  } else {
    for (Bitboard rooks = castling_rooks_ & ours; rooks;) {
      const Square rook = pop_first(rooks);
      const bool kingside = rook > king;
      const Square king_to = castled_king(Us, kingside);
      const Square rook_to = castled_rook(Us, kingside);
      const Bitboard king_path = between(king, king_to) | bit(king_to);
      const Bitboard paths = king_path | between(king, rook) | between(rook, rook_to) | bit(rook_to);
      const Bitboard others = occupied ^ bit(king) ^ bit(rook);
      // A rook pinned on the first rank (Chess960 only) would uncover its king by going round it.
      if (!(paths & others) && !(king_path & danger) && !(bit(rook) & straight_pins))
        sink.add(Move(king, rook));
    }
  }
  const Bitboard allowed = targets & ~ours;

  for (Bitboard set = by_type_[kKnight] & ours & ~pins; set;) {
    const Square from = pop_first(set);
    sink.add_all(from, knight_attacks(from) & allowed);
  }
  for (Bitboard set = diagonal_movers & ours & ~straight_pins; set;) {
    const Square from = pop_first(set);
    Bitboard moves = bishop_attacks(from, occupied) & allowed;
    if (bit(from) & diagonal_pins) moves &= diagonal_pins;
    sink.add_all(from, moves);
  }
  for (Bitboard set = straight_movers & ours & ~diagonal_pins; set;) {
    const Square from = pop_first(set);
    Bitboard moves = rook_attacks(from, occupied) & allowed;
    if (bit(from) & straight_pins) moves &= straight_pins;
    sink.add_all(from, moves);
  }

  const Bitboard pawns = by_type_[kPawn] & ours;
  const Bitboard pushers = pawns & ~diagonal_pins;
  const Bitboard takers = pawns & ~straight_pins;
  const Bitboard pushed = (shift<Step::kForward>(pushers & ~straight_pins) |
                           (shift<Step::kForward>(pushers & straight_pins) & straight_pins)) &
                          ~occupied;
  const Bitboard pushed_twice = shift<Step::kForward>(pushed & Step::kThirdRank) & ~occupied & targets;
  const Bitboard pushed_once = pushed & targets;
  const Bitboard west = (shift<Step::kWest>(takers & ~diagonal_pins) |
                         (shift<Step::kWest>(takers & diagonal_pins) & diagonal_pins)) &
                        theirs & targets;
  const Bitboard east = (shift<Step::kEast>(takers & ~diagonal_pins) |
                         (shift<Step::kEast>(takers & diagonal_pins) & diagonal_pins)) &
                        theirs & targets;
  sink.template add_pawns<Step::kForward>(pushed_once & ~Step::kLastRank);
  sink.template add_pawns<2 * Step::kForward>(pushed_twice);
  sink.template add_pawns<Step::kWest>(west & ~Step::kLastRank);
  sink.template add_pawns<Step::kEast>(east & ~Step::kLastRank);
  if ((pushed_once | west | east) & Step::kLastRank) {
    sink.template add_promotions<Step::kForward>(pushed_once & Step::kLastRank);
    sink.template add_promotions<Step::kWest>(west & Step::kLastRank);
    sink.template add_promotions<Step::kEast>(east & Step::kLastRank);
  }

  if (en_passant_ != kNoSquare) {
    const Bitboard captured = bit(en_passant_ ^ 8);
    for (Bitboard set = pawn_attacks(kThem, en_passant_) & pawns; set;) {
      const Square from = pop_first(set);
      const Bitboard after = (occupied ^ bit(from) ^ captured) | bit(en_passant_);
      if (!(attackers(king, kThem, after) & ~captured)) sink.add(Move(from, en_passant_));
    }
  }
}

void Position::legal_moves(MoveList& moves) const {
  ListSink sink{moves};
  side_to_move_ == kWhite ? generate<kWhite>(sink) : generate<kBlack>(sink);
}

int Position::legal_move_count() const {
  CountSink sink;
  side_to_move_ == kWhite ? generate<kWhite>(sink) : generate<kBlack>(sink);
  return sink.total;
}

}  // namespace wavefront
