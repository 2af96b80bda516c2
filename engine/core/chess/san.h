// SPDX-License-Identifier: GPL-3.0-or-later
// Moves as standard algebraic notation ("Nf3", "exd8=Q+", "O-O").
#pragma once

#include <string>
#include <string_view>

#include "chess/position.h"

namespace wavefront::chess {

// Returns a legal move as SAN, with the shortest origin and the sign of check or mate.
std::string move_to_san(const Position& position, Move move);

// Reads a legal move: SAN without signs of check, also with needless origins (e2e4) or without x, = and -.
// Throws std::invalid_argument with the reason for other texts, and if several moves fit.
Move parse_san(const Position& position, std::string_view text);

}  // namespace wavefront::chess
