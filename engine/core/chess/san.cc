// SPDX-License-Identifier: GPL-3.0-or-later
// Reading and writing of moves as SAN.
#include "chess/san.h"

#include <stdexcept>

#include "chess/square_names.h"

namespace wavefront::chess {

namespace {

constexpr std::string_view kLetters = "PNBRQK";

bool is_castling(const Position& position, Move move) {
  return (position.pieces(position.side_to_move()) & bit(move.to())) != 0;
}

// Returns true if a text without the signs x, : - and = names a legal move.
bool names(const Position& position, Move move, std::string_view text) {
  if (is_castling(position, move)) {
    const bool kingside = move.to() > move.from();
    // Some programs write Kg1 and e1g1, which no other move is if the king is on the e-file.
    const std::string from = square_name(move.from());
    const std::string step = square_name(castled_king(position.side_to_move(), kingside));
    return text == (kingside ? "OO" : "OOO") ||
           (from[0] == 'e' && (text == "K" + step || text == from + step));
  }
  if (move.promotion() != kNoPiece) {
    if (text.empty() || text.back() != kLetters[move.promotion()]) return false;
    text.remove_suffix(1);
  }
  if (text.size() < 2 || parse_square(text[text.size() - 2], text.back()) != move.to()) return false;
  text.remove_suffix(2);
  const std::string from = square_name(move.from());
  if (text == from) return true;
  const PieceType type = position.piece_on(move.from());
  // A pawn's origin is the file of a capture: neither ee4 nor 2e4.
  if (type == kPawn)
    return file_of(move.from()) == file_of(move.to()) ? text.empty() : text == from.substr(0, 1);
  if (text.empty() || text[0] != kLetters[type]) return false;
  text.remove_prefix(1);
  return text.empty() || text == from || (text.size() == 1 && from.find(text[0]) != std::string::npos);
}

MoveList named(const Position& position, std::string_view text) {
  MoveList moves, found;
  position.legal_moves(moves);
  for (const Move move : moves) {
    if (names(position, move, text)) found.push(move);
  }
  return found;
}

}  // namespace

std::string move_to_san(const Position& position, Move move) {
  const PieceType type = position.piece_on(move.from());
  const std::string from = square_name(move.from()), to = square_name(move.to());
  std::string text = move.to() > move.from() ? "O-O" : "O-O-O";
  if (!is_castling(position, move)) {
    const bool captures = position.piece_on(move.to()) != kNoPiece || (type == kPawn && from[0] != to[0]);
    text = type == kPawn ? (captures ? from.substr(0, 1) : "") : std::string(1, kLetters[type]);
    if (type != kPawn) {
      for (const std::string& origin : {std::string(), from.substr(0, 1), from.substr(1), from}) {
        if (named(position, text + origin + to).size() > 1) continue;
        text += origin;
        break;
      }
    }
    text += (captures ? "x" : "") + to;
    if (move.promotion() != kNoPiece) text += {'=', kLetters[move.promotion()]};
  }
  Position after = position;
  after.play(move);
  if (after.in_check()) text += after.legal_move_count() ? '+' : '#';
  return text;
}

Move parse_san(const Position& position, std::string_view text) {
  std::string plain(text);
  std::erase_if(plain, [](char c) { return c == 'x' || c == ':' || c == '-' || c == '='; });
  const MoveList found = named(position, plain);
  // xd5 lacks the pawn's file.
  if (found.size() == 1 && plain[0] == text[0]) return found[0];
  const std::string reason = found.size() > 1 ? "several moves fit: '" : "illegal move: '";
  throw std::invalid_argument(reason + std::string(text.substr(0, 16)) + "'");
}

}  // namespace wavefront::chess
