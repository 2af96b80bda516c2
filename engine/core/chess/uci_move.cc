// SPDX-License-Identifier: GPL-3.0-or-later
// Reading and writing of moves as UCI text.
#include "chess/uci_move.h"

#include <stdexcept>

#include "chess/square_names.h"

namespace wavefront::chess {

namespace {

constexpr std::string_view kPromotionLetters = " nbrq";

bool is_castling(const Position& position, Move move) {
  return (position.pieces(position.side_to_move()) & bit(move.to())) != 0;
}

// Returns the text for a message: limited in length, and printable.
std::string shown(std::string_view text) {
  std::string result = "'";
  for (const char c : text.substr(0, 16)) result += c >= ' ' && c <= '~' ? c : '?';
  if (text.size() > 16) result += "...";
  result += "'";
  return result;
}

[[noreturn]] void refuse(std::string_view text, const std::string& reason) {
  throw std::invalid_argument("move " + shown(text) + ": " + reason);
}

// Returns why a well-formed move is illegal.
std::string fault(const Position& position, Move move) {
  const Color us = position.side_to_move();
  const char* name = us == kWhite ? "White" : "Black";
  const PieceType type = position.piece_on(move.from());
  if (type == kNoPiece) return "there is no piece on " + square_name(move.from());
  if (!(position.pieces(us) & bit(move.from()))) {
    return "the piece on " + square_name(move.from()) + " is not " + name + "'s, who is to move";
  }
  const bool promotes = type == kPawn && relative_rank(us, move.to()) == 7;
  if (promotes && move.promotion() == kNoPiece) return "a promotion needs its piece, one of n, b, r, q";
  if (!promotes && move.promotion() != kNoPiece) return "it is no promotion";
  if (position.in_check()) return "it is illegal (" + std::string(name) + " is in check)";
  return "it is illegal in this position";
}

}  // namespace

std::string move_to_uci(const Position& position, Move move, bool chess960) {
  Square to = move.to();
  if (!chess960 && is_castling(position, move)) to = castled_king(position.side_to_move(), to > move.from());
  std::string text = square_name(move.from()) + square_name(to);
  if (move.promotion() != kNoPiece) text += kPromotionLetters[move.promotion()];
  return text;
}

Move parse_uci(const Position& position, std::string_view text) {
  if (text.size() != 4 && text.size() != 5)
    refuse(text, "expected four or five characters such as e2e4 or e7e8q");
  if (text == "0000") refuse(text, "a null move cannot be played");
  const Square from = parse_square(text[0], text[1]);
  const Square to = parse_square(text[2], text[3]);
  if (from == kNoSquare || to == kNoSquare) refuse(text, "expected two squares such as e2e4");
  PieceType promotion = kNoPiece;
  if (text.size() == 5) {
    const size_t letter = kPromotionLetters.find(text[4]);
    if (letter == std::string_view::npos || letter == 0)
      refuse(text, "the promotion piece is none of n, b, r, q");
    promotion = PieceType(letter);
  }

  MoveList moves;
  position.legal_moves(moves);
  const Move move(from, to, promotion);
  if (moves.contains(move)) return move;
  const Color us = position.side_to_move();
  if (promotion == kNoPiece && from == position.king_square(us)) {
    for (const bool kingside : {true, false}) {
      const Square rook = position.castling_rook(us, kingside);
      const bool names_castling = from != to && to == castled_king(us, kingside);
      if (rook != kNoSquare && names_castling && moves.contains(Move(from, rook))) return Move(from, rook);
    }
  }
  refuse(text, fault(position, move));
}

}  // namespace wavefront::chess
