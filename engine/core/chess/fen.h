// SPDX-License-Identifier: GPL-3.0-or-later
// Reading and writing FEN (Forsyth-Edwards Notation). Illegal positions are refused with a reason.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chess/position.h"

namespace wavefront::chess {

// Reads a FEN of six fields, or of four without the counters (then "0 1").
//
// Castling rights are KQkq or the rooks' files (Shredder-FEN: HAha). With chess960, K and Q mean the
// outermost rook (X-FEN), and king and rooks may stand anywhere on their first rank. Otherwise they must be
// at home.
//
// Throws std::invalid_argument with the reason for invalid text, and for positions that are obviously
// unreachable: kings missing, adjacent or left in check, more men than promotions allow, pawns on the first
// or last rank, castling rights without king and rook at home, an en-passant square without a preceding
// double step, more than two checkers, counters out of range.
//
// kAllow accepts a check on the side not to move. lc0 evaluates such positions, with captures of the king
// among the moves. They can be encoded, but not played from.
enum class OpponentCheck { kRefuse, kAllow };
Position parse_fen(std::string_view fen, bool chess960,
                   OpponentCheck opponent_check = OpponentCheck::kRefuse);

// Reads an untrusted FEN like parse_fen, but corrects errors with one obvious correction, and adds a phrase
// for each to `corrections`: missing fields after the side to move, castling rights without king or rook, a
// wrong en-passant square, counters out of range. Pieces and the side to move never change. Castling rights
// by file (HAha) that only Chess960 has are refused without `chess960`.
Position read_fen(std::string_view fen, bool chess960, OpponentCheck opponent_check,
                  std::vector<std::string>& corrections);

// Returns a FEN of six fields, with the en-passant square only if a capture there is legal. Castling rights
// are KQkq in standard chess, rook files (HAha) in Chess960.
std::string to_fen(const Position& position, bool chess960);

}  // namespace wavefront::chess
