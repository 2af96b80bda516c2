// SPDX-License-Identifier: GPL-3.0-or-later
// Parsing, validation, correction and writing of FEN.
#include "chess/fen.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "chess/attacks.h"
#include "chess/fen_fields.h"
#include "chess/square_names.h"

namespace wavefront::chess {

namespace {

using Setup = Position::Setup;

constexpr size_t kMaxLength = 128;  // the longest legal FEN has about 95 characters
constexpr int kMaxRule50 = 150;     // end of every game by the 75-move rule
constexpr int kMaxFullmove = 9999;
constexpr std::string_view kPieceLetters = "pnbrqk";

// Returns a character for a message; its code if it is not printable.
std::string quoted(char c) {
  if (c >= ' ' && c <= '~') return std::string("'") + c + "'";
  constexpr std::string_view kHex = "0123456789abcdef";
  const auto code = static_cast<unsigned char>(c);
  return std::string("byte 0x") + kHex[code >> 4] + kHex[code & 15];
}

std::string quoted(std::string_view text) {
  std::string result = "'";
  result += text;
  result += "'";
  return result;
}

const char* color_name(Color color) {
  return color == kWhite ? "White" : "Black";
}

char piece_letter(Color color, PieceType type) {
  const char letter = kPieceLetters[type];
  return color == kWhite ? char(letter - 'a' + 'A') : letter;
}

void read_board(std::string_view text, Setup& setup) {
  int rank = 7;
  int file = 0;
  bool after_digit = false;
  for (const char c : text) {
    const std::string where = "rank " + std::to_string(rank + 1);
    if (c == '/') {
      if (file != 8) refuse(where + " has " + std::to_string(file) + " squares instead of 8");
      if (rank == 0) refuse("more than 8 ranks");
      --rank;
      file = 0;
      after_digit = false;
      continue;
    }
    if (c >= '1' && c <= '8') {
      if (after_digit) refuse(where + " has two digits in a row");
      file += c - '0';
      after_digit = true;
    } else {
      const bool white = c >= 'A' && c <= 'Z';
      const size_t type = kPieceLetters.find(white ? char(c - 'A' + 'a') : c);
      if (type == std::string_view::npos)
        refuse(quoted(c) + " on " + where + " is neither a piece nor a digit 1 to 8");
      if (file < 8) {
        setup.by_type[type] |= bit(make_square(file, rank));
        setup.by_color[white ? kWhite : kBlack] |= bit(make_square(file, rank));
      }
      ++file;
      after_digit = false;
    }
    if (file > 8) refuse(where + " has more than 8 squares");
  }
  if (rank != 0) refuse("the board has " + std::to_string(8 - rank) + " ranks instead of 8");
  if (file != 8) refuse("rank 1 has " + std::to_string(file) + " squares instead of 8");
}

void check_men(const Setup& setup) {
  for (const Color color : {kWhite, kBlack}) {
    const Bitboard own = setup.by_color[color];
    const auto number = [&](PieceType type) { return count(setup.by_type[type] & own); };
    const std::string name = color_name(color);
    if (number(kKing) == 0) refuse(name + " has no king");
    if (number(kKing) > 1) refuse(name + " has " + std::to_string(number(kKing)) + " kings");
    if (count(own) > 16) refuse(name + " has " + std::to_string(count(own)) + " men, more than 16");
    if (number(kPawn) > 8) refuse(name + " has " + std::to_string(number(kPawn)) + " pawns, more than 8");
    const Bitboard bishops = setup.by_type[kBishop] & own;
    const auto beyond = [](int men, int at_start) { return std::max(0, men - at_start); };
    const int promoted = beyond(number(kQueen), 1) + beyond(number(kRook), 2) + beyond(number(kKnight), 2) +
                         beyond(count(bishops & kDarkSquares), 1) + beyond(count(bishops & ~kDarkSquares), 1);
    if (promoted > 8 - number(kPawn)) {
      refuse(name + " has at least " + std::to_string(promoted) + " promoted pieces but only " +
             std::to_string(8 - number(kPawn)) + " missing pawns");
    }
  }
  const Bitboard misplaced = setup.by_type[kPawn] & (rank_mask(0) | rank_mask(7));
  if (misplaced)
    refuse("a pawn stands on " + square_name(first_square(misplaced)) + ", on the first or last rank");
  const Bitboard kings = setup.by_type[kKing];
  for (Bitboard rest = kings; rest;) {
    if (king_attacks(pop_first(rest)) & kings) refuse("the kings stand next to each other");
  }
}

Color read_side(std::string_view text) {
  if (text == "w") return kWhite;
  if (text == "b") return kBlack;
  refuse("the side to move is " + quoted(text) + " instead of w or b");
}

// An error of a castling letter. only_chess960: the right exists in Chess960.
struct CastlingFault {
  std::string text;
  bool only_chess960 = false;
};

bool is_castling_letter(char lower) {
  return (lower >= 'a' && lower <= 'h') || lower == 'k' || lower == 'q';
}

// Returns the rook of a castling letter; kNoSquare with a fault.
Square castling_rook_of(char letter, Color color, const Setup& setup, bool chess960, CastlingFault& fault) {
  const Bitboard own = setup.by_color[color];
  const Square king = first_square(setup.by_type[kKing] & own);
  const Bitboard home = rank_mask(color * 7);
  const Bitboard rooks = setup.by_type[kRook] & own & home;
  const auto without = [&](const std::string& why, bool only_chess960 = false) {
    fault = {"castling right " + quoted(letter) + ": " + why, only_chess960};
    return kNoSquare;
  };
  if (!(home & bit(king))) return without("the king is not on its first rank");
  const char lower = color == kWhite ? char(letter - 'A' + 'a') : letter;
  const bool by_side = lower == 'k' || lower == 'q';

  Square rook = kNoSquare;
  if (by_side) {
    const bool kingside = lower == 'k';
    const Bitboard beyond = kingside ? ~(bit(king) | (bit(king) - 1)) : bit(king) - 1;
    Bitboard candidates = rooks & beyond;
    if (!chess960) candidates &= kFileA | kFileH;
    if (!candidates) return without("there is no rook for it");
    rook = kingside ? 63 - std::countl_zero(candidates) : first_square(candidates);
  } else {
    rook = make_square(lower - 'a', color * 7);
    if (!(rooks & bit(rook))) return without("there is no rook on " + square_name(rook));
  }
  if (!chess960 && file_of(king) != 4)
    return without("the king is not on the e-file (a Chess960 position?)", !by_side);
  if (!chess960 && file_of(rook) != 0 && file_of(rook) != 7) {
    return without("the rook is not in the corner (a Chess960 position?)", !by_side);
  }
  return rook;
}

Bitboard read_castling(std::string_view text, const Setup& setup, bool chess960, const Corrector& corrector) {
  if (text == "-") return 0;
  Bitboard rooks = 0;
  for (const char c : text) {
    const bool white = c >= 'A' && c <= 'Z';
    const Color color = white ? kWhite : kBlack;
    CastlingFault fault;
    Square rook = kNoSquare;
    if (is_castling_letter(white ? char(c - 'A' + 'a') : c)) {
      rook = castling_rook_of(c, color, setup, chess960, fault);
    } else {
      fault.text = quoted(c) + " in the castling rights is none of KQkq, a file letter or -";
    }
    if (fault.only_chess960) refuse(fault.text);
    if (rook != kNoSquare && (rooks & bit(rook))) {
      fault.text = "castling rights name the rook on " + square_name(rook) + " twice";
    }
    if (!fault.text.empty()) {
      corrector.correct(fault.text, "it is ignored");
    } else {
      rooks |= bit(rook);
    }
  }
  for (const Color color : {kWhite, kBlack}) {
    const Bitboard own = rooks & setup.by_color[color];
    const Bitboard below_king = (setup.by_type[kKing] & setup.by_color[color]) - 1;
    if (!at_most_one(own & below_king) || !at_most_one(own & ~below_king)) {
      refuse(std::string("castling rights name two rooks on the same side of ") + color_name(color) +
             "'s king");
    }
  }
  return rooks;
}

// Returns the error of an en-passant field; empty if the last move can have been its double step.
std::string fault_of_en_passant(std::string_view text, Square square, const Setup& setup) {
  if (square == kNoSquare) return "the en-passant square is " + quoted(text) + " instead of a square or -";
  const Color us = setup.side_to_move;
  const std::string name = "en-passant square " + square_name(square);
  if (relative_rank(us, square) != 5) {
    return name + " must be on rank " + (us == kWhite ? "6 with White" : "3 with Black") + " to move";
  }
  const Square pawn = square ^ 8;
  const Square origin = us == kWhite ? square + 8 : square - 8;
  if (!(setup.by_type[kPawn] & setup.by_color[~us] & bit(pawn))) {
    return name + ": there is no pawn on " + square_name(pawn) + " that could have passed it";
  }
  const Bitboard occupied = setup.by_color[kWhite] | setup.by_color[kBlack];
  if (occupied & bit(square)) return name + " is occupied";
  if (occupied & bit(origin)) {
    return name + ": the pawn cannot have come from " + square_name(origin) + ", which is occupied";
  }
  return "";
}

Square read_en_passant(std::string_view text, const Setup& setup, const Corrector& corrector) {
  if (text == "-") return kNoSquare;
  const Square square = text.size() == 2 ? parse_square(text[0], text[1]) : kNoSquare;
  const std::string fault = fault_of_en_passant(text, square, setup);
  if (fault.empty()) return square;
  corrector.correct(fault, "it is ignored");
  return kNoSquare;
}

int read_counter(std::string_view text, const std::string& name, int minimum, int maximum,
                 const Corrector& corrector) {
  const auto corrected = [&](const std::string& fault, int value) {
    corrector.correct(name + " " + fault, std::to_string(value) + " is used");
    return value;
  };
  if (text.find_first_not_of("0123456789") != std::string_view::npos) {
    return corrected(quoted(text) + " is not a number", minimum);
  }
  if (text.size() > 6) return corrected("is not a number from 0 to " + std::to_string(maximum), maximum);
  int value = 0;
  for (const char c : text) value = value * 10 + (c - '0');
  if (value > maximum) {
    return corrected(std::to_string(value) + " is larger than " + std::to_string(maximum), maximum);
  }
  // Some programs count moves from 0.
  return value < minimum && corrector.corrects() ? corrected(std::to_string(value) + " is too small", minimum)
                                                 : std::max(minimum, value);
}

void check_checks(const Position& position, OpponentCheck opponent_check) {
  const Color us = position.side_to_move();
  if (opponent_check == OpponentCheck::kRefuse && position.opponent_in_check()) {
    refuse(std::string(color_name(~us)) + " is in check but it is " + color_name(us) + "'s move");
  }
  if (count(position.checkers()) > 2)
    refuse(std::string(color_name(us)) + " is in check from more than two men");
}

Position read(std::string_view fen, bool chess960, OpponentCheck opponent_check, const Corrector& corrector) {
  if (fen.size() > kMaxLength) {
    refuse(std::to_string(fen.size()) + " characters are too many (at most " + std::to_string(kMaxLength) +
           ")");
  }
  for (const char c : fen) {
    if (c < ' ' || c > '~') refuse(quoted(c) + " is not a printable ASCII character");
  }
  const std::vector<std::string_view> fields = split_fields(fen);
  const OptionalFields rest = read_optional(fields, corrector);

  Setup setup;
  read_board(fields[0], setup);
  check_men(setup);
  setup.side_to_move = read_side(fields[1]);
  setup.castling_rooks = read_castling(rest.castling, setup, chess960, corrector);
  setup.en_passant = read_en_passant(rest.en_passant, setup, corrector);
  setup.rule50 = read_counter(rest.clock, "halfmove clock", 0, kMaxRule50, corrector);
  const int fullmove = read_counter(rest.number, "move number", 1, kMaxFullmove, corrector);
  setup.ply = 2 * (fullmove - 1) + (setup.side_to_move == kBlack ? 1 : 0);
  const Position position(setup);
  check_checks(position, opponent_check);
  return position;
}

}  // namespace

Position parse_fen(std::string_view fen, bool chess960, OpponentCheck opponent_check) {
  return read(fen, chess960, opponent_check, Corrector(nullptr));
}

Position read_fen(std::string_view fen, bool chess960, OpponentCheck opponent_check,
                  std::vector<std::string>& corrections) {
  return read(fen, chess960, opponent_check, Corrector(&corrections));
}

std::string to_fen(const Position& position, bool chess960) {
  std::string fen;
  for (int rank = 7; rank >= 0; --rank) {
    int empty = 0;
    for (int file = 0; file < 8; ++file) {
      const Square square = make_square(file, rank);
      const PieceType type = position.piece_on(square);
      if (type == kNoPiece) {
        ++empty;
        continue;
      }
      if (empty) fen += char('0' + empty);
      empty = 0;
      fen += piece_letter(position.pieces(kWhite) & bit(square) ? kWhite : kBlack, type);
    }
    if (empty) fen += char('0' + empty);
    if (rank) fen += '/';
  }
  fen += position.side_to_move() == kWhite ? " w " : " b ";
  if (!position.has_castling_rights()) fen += '-';
  for (const Color color : {kWhite, kBlack}) {
    for (const bool kingside : {true, false}) {
      const Square rook = position.castling_rook(color, kingside);
      if (rook == kNoSquare) continue;
      const char letter = chess960 ? char('a' + file_of(rook)) : kingside ? 'k' : 'q';
      fen += color == kWhite ? char(letter - 'a' + 'A') : letter;
    }
  }
  fen += ' ';
  fen += position.has_legal_en_passant() ? square_name(position.en_passant()) : "-";
  fen += ' ' + std::to_string(position.rule50()) + ' ' + std::to_string(position.fullmove());
  return fen;
}

}  // namespace wavefront::chess
