// SPDX-License-Identifier: GPL-3.0-or-later
// Reading and writing of moves as SAN.
#include "chess/san.h"

#include <stdexcept>

#include "chess/square_names.h"
#include "chess/uci_move.h"

namespace wavefront::chess {

namespace {

constexpr std::string_view kLetters = "PNBRQK";

// What a text tells of a move; -1 where it tells nothing.
struct Wanted {
  PieceType type = kPawn;
  int file = -1, rank = -1;
  Square to = kNoSquare;
  PieceType promotion = kNoPiece;
};

bool is_castling(const Position& position, Move move) {
  return (position.pieces(position.side_to_move()) & bit(move.to())) != 0;
}

// Reads from the end: promotion, target, origin, piece. `to` stays kNoSquare if the text is not a move.
Wanted wanted_of(std::string_view text) {
  Wanted wanted;
  const auto without = [&text](char sign) {
    if (!text.empty() && text.back() == sign) text.remove_suffix(1);
  };
  const auto last_in = [&text](char first, char last) {
    if (text.empty() || text.back() < first || text.back() > last) return -1;
    const int found = text.back() - first;
    text.remove_suffix(1);
    return found;
  };
  if (const size_t letter = text.empty() ? 0 : kLetters.find(text.back());
      letter >= kKnight && letter <= kQueen) {
    wanted.promotion = PieceType(letter);
    text.remove_suffix(1);
    without('=');
  }
  const int rank = last_in('1', '8');
  const int file = last_in('a', 'h');
  const size_t target_begin = text.size();
  for (const char sign : {'x', ':', '-'}) without(sign);
  if (text.size() < target_begin && text.empty()) return wanted;  // xd5 lacks the pawn's file
  wanted.rank = last_in('1', '8');
  wanted.file = last_in('a', 'h');
  if (!text.empty()) {
    const size_t letter = kLetters.find(text[0]);
    if (letter == std::string_view::npos || text.size() > 1) return wanted;
    wanted.type = PieceType(letter);
  }
  // A pawn's origin is the file of a capture, or a whole square: neither ee4 nor 2e4.
  const bool odd = wanted.type == kPawn && (wanted.rank < 0 ? wanted.file == file : wanted.file < 0);
  if (rank >= 0 && file >= 0 && !odd) wanted.to = make_square(file, rank);
  return wanted;
}

bool fits(const Position& position, Move move, const Wanted& wanted) {
  return move.to() == wanted.to && move.promotion() == wanted.promotion &&
         position.piece_on(move.from()) == wanted.type && !is_castling(position, move) &&
         (wanted.file < 0 || file_of(move.from()) == wanted.file) &&
         (wanted.rank < 0 || rank_of(move.from()) == wanted.rank);
}

}  // namespace

std::string move_to_san(const Position& position, Move move) {
  std::string text;
  const PieceType type = position.piece_on(move.from());
  if (is_castling(position, move)) {
    text = move.to() > move.from() ? "O-O" : "O-O-O";
  } else {
    const bool captures = position.piece_on(move.to()) != kNoPiece ||
                          (type == kPawn && file_of(move.from()) != file_of(move.to()));
    const std::string from = square_name(move.from());
    if (type == kPawn) {
      if (captures) text = from[0];
    } else {
      bool other = false, same_file = false, same_rank = false;
      MoveList moves;
      position.legal_moves(moves);
      for (const Move each : moves) {
        if (each.from() == move.from() || !fits(position, each, {type, -1, -1, move.to(), kNoPiece}))
          continue;
        other = true;
        same_file |= file_of(each.from()) == file_of(move.from());
        same_rank |= rank_of(each.from()) == rank_of(move.from());
      }
      text = kLetters[type];
      if (other && (!same_file || same_rank)) text += from[0];
      if (same_file) text += from[1];
    }
    if (captures) text += 'x';
    text += square_name(move.to());
    if (move.promotion() != kNoPiece) text += {'=', kLetters[move.promotion()]};
  }
  Position after = position;
  after.play(move);
  if (after.in_check()) text += after.legal_move_count() ? '+' : '#';
  return text;
}

Move parse_san(const Position& position, std::string_view text) {
  const bool castles = text == "O-O" || text == "O-O-O";
  const Wanted wanted = wanted_of(text);
  const std::string shown = ": '" + std::string(text.substr(0, 16)) + "'";
  if (!castles && wanted.to == kNoSquare) throw std::invalid_argument("not a move" + shown);
  const bool names_pawn = wanted.type == kPawn && !castles;
  if (names_pawn && wanted.file >= 0 && wanted.rank >= 0) {  // e2e4 and g1f3, whatever moves
    const Move move(make_square(wanted.file, wanted.rank), wanted.to, wanted.promotion);
    return parse_uci(position, move_to_uci(position, move, true));
  }
  MoveList moves;
  position.legal_moves(moves);
  Move found;
  for (const Move move : moves) {
    const bool kingside = move.to() > move.from();
    const bool captures_by_pawn = names_pawn && file_of(move.from()) != file_of(move.to());
    if (castles ? !(is_castling(position, move) && kingside == (text.size() == 3))
                : !fits(position, move, wanted) || (captures_by_pawn && wanted.file < 0)) {
      continue;
    }
    if (found) throw std::invalid_argument("several moves fit" + shown);
    found = move;
  }
  if (!found && wanted.type == kKing) {  // Kg1 for castling, as some programs write it
    for (const Move move : moves) {
      const bool kingside = move.to() > move.from();
      if (is_castling(position, move) && castled_king(position.side_to_move(), kingside) == wanted.to)
        found = move;
    }
  }
  if (!found) throw std::invalid_argument("illegal move" + shown);
  return found;
}

}  // namespace wavefront::chess
