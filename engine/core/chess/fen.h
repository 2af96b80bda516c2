// SPDX-License-Identifier: GPL-3.0-or-later
// Positions as text (Forsyth-Edwards Notation), with every illegal position refused by name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chess/position.h"

namespace wavefront::chess {

// Reads a FEN of six fields, or of four with the counters left out (then "0 1").
//
// Castling rights are KQkq or the rooks' files (Shredder-FEN: HAha). With chess960, K and Q mean the
// outermost rook (X-FEN) and king and rooks may stand anywhere on their first rank; without, they must be at
// home.
//
// Throws std::invalid_argument, with a message that names the fault, for text that is no FEN and for
// positions that no game can reach as far as can be told at a glance: kings missing, adjacent or left in
// check, more men than promotions allow, pawns on the first or last rank, castling rights without king and
// rook at home, an en-passant square that no double step has just passed, more than two checkers, counters
// out of range.
//
// kAllow accepts a check on the side that is not to move. lc0 evaluates such positions, and lists captures of
// the king among the moves; they can be encoded, but not played from.
enum class OpponentCheck { kRefuse, kAllow };
Position parse_fen(std::string_view fen, bool chess960,
                   OpponentCheck opponent_check = OpponentCheck::kRefuse);

// Reads a FEN from outside as parse_fen does, but corrects what has one obvious correction, and adds a phrase
// for each correction to `corrections`: missing fields behind the side to move, castling rights without king
// or rook, a wrong en-passant square, counters out of range. Pieces and the side to move never change.
// Castling rights by file (HAha) that only Chess960 knows are refused without `chess960`.
Position read_fen(std::string_view fen, bool chess960, OpponentCheck opponent_check,
                  std::vector<std::string>& corrections);

// Six fields. The en-passant square is written only if a capture there is legal; castling rights are KQkq in
// standard chess, rook files (HAha) in Chess960.
std::string to_fen(const Position& position, bool chess960);

}  // namespace wavefront::chess
