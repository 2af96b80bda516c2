// SPDX-License-Identifier: GPL-3.0-or-later
// Python binding for training: encodes the positions of many games at once.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "bind.h"
#include "bind_encoding.h"
#include "chess/game.h"
#include "chess/uci_move.h"
#include "encoding/encoder.h"
#include "encoding/policy_index.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace wavefront::engine {

using namespace chess;

namespace {

template <class T>
using Column = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Codes = nb::ndarray<const uint16_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

constexpr uint8_t kNotAsked = 255;  // larger than any place: no position has 255 legal moves

// The results of `encode_games` before conversion to arrays.
struct Rows {
  std::vector<uint8_t> positions;
  std::vector<int8_t> transforms;
  std::vector<uint64_t> keys;
  std::vector<uint32_t> move_offsets{0};
  std::vector<uint16_t> policy;
  std::vector<uint16_t> codes;
  std::vector<uint8_t> places;
  std::vector<uint32_t> plies;
};

std::string code_text(uint16_t code) {
  const auto square = [](int s) { return std::string{char('a' + s % 8), char('1' + s / 8)}; };
  const int promotion = code >> 12;
  std::string text = square(code & 63) + square(code >> 6 & 63);
  if (promotion >= 1 && promotion <= 4) text += " nbrq"[promotion];
  return text;
}

// Returns the index of a coded move among the legal moves; -1 if illegal. Castling is the king's two-square
// move or king takes rook.
int place_of(const Position& position, const MoveList& legal, uint16_t code) {
  Move wanted = Move::from_raw(code);
  const Square from = wanted.from();
  const Square to = wanted.to();
  const Color us = position.side_to_move();
  if (from == position.king_square(us) && from / 8 == to / 8 && std::abs(from - to) == 2) {
    const Square rook = position.castling_rook(us, to > from);
    if (rook != kNoSquare) wanted = Move(from, rook);
  }
  for (int i = 0; i < legal.size(); ++i) {
    if (legal[i] == wanted) return i;
  }
  return -1;
}

class RowEncoder {
 public:
  RowEncoder(InputFormat format, HistoryFill fill, size_t positions, size_t asked)
      : format_(format), fill_(fill), asked_(asked) {
    rows.positions.resize(positions * sizeof(EncodedPosition));
    rows.places.reserve(positions * asked);
  }

  void find_moves(const Position& position) {
    legal.clear();
    position.legal_moves(legal);
  }

  // Encodes the current position, whose moves `legal` holds.
  void encode_current(const History& history, const uint16_t* asked) {
    EncodedPosition encoded;
    const Position& position = history.current();
    const int transform = encode(history, format_, fill_, encoded);
    std::memcpy(&rows.positions[rows.keys.size() * sizeof(encoded)], &encoded, sizeof(encoded));
    rows.transforms.push_back(int8_t(transform));
    rows.keys.push_back(position.key());
    rows.plies.push_back(uint32_t(position.ply()));
    for (const Move move : legal) {
      rows.policy.push_back(policy_index(move, position.side_to_move(), transform));
      rows.codes.push_back(move.raw());
    }
    rows.move_offsets.push_back(uint32_t(rows.policy.size()));
    for (size_t k = 0; k < asked_; ++k) {
      rows.places.push_back(asked[k] ? uint8_t(place(position, asked[k])) : kNotAsked);
    }
  }

  // Returns the index of a move in `legal`, the legal moves of the position.
  int place(const Position& position, uint16_t code) const {
    const int found = place_of(position, legal, code);
    if (found < 0) {
      throw std::invalid_argument("the move " + code_text(code) + " is not legal in " +
                                  to_fen(position, false));
    }
    return found;
  }

  MoveList legal;
  Rows rows;

 private:
  InputFormat format_;
  HistoryFill fill_;
  size_t asked_;
};

auto encode_games(const std::vector<std::string>& fens, const Column<uint8_t>& chess960,
                  const Column<uint16_t>& plies, const Column<uint16_t>& prefix,
                  const Column<uint16_t>& moves, const Column<uint32_t>& branch_at,
                  const Column<uint16_t>& branch_moves, const Codes& asked, int input_format,
                  const nb::str& history_fill) {
  const InputFormat format = checked_format(input_format);
  const HistoryFill fill = checked_fill(history_fill);
  const size_t games = fens.size();
  const size_t branches = branch_at.shape(0);
  if (chess960.shape(0) != games || plies.shape(0) != games || prefix.shape(0) != games) {
    throw std::invalid_argument("the games' columns differ in length");
  }
  size_t played = 0;
  size_t samples = 0;
  for (size_t g = 0; g < games; ++g) {
    if (prefix(g) > plies(g)) throw std::invalid_argument("a prefix is longer than its game");
    played += plies(g);
    samples += size_t(plies(g) - prefix(g));
  }
  if (moves.shape(0) != played) throw std::invalid_argument("moves are not as many as the plies");
  if (branch_moves.shape(0) != branches) throw std::invalid_argument("branch_at and branch_moves differ");
  if (asked.shape(0) != samples + branches) {
    throw std::invalid_argument("asked has not one row for each position");
  }
  for (size_t b = 0; b < branches; ++b) {
    if (branch_at(b) >= samples || (b && branch_at(b) < branch_at(b - 1))) {
      throw std::invalid_argument("branch_at is not ascending, or beyond the last position");
    }
  }
  const size_t width = asked.shape(1);
  RowEncoder game_rows(format, fill, samples, width);
  RowEncoder branch_rows(format, fill, branches, width);
  {
    nb::gil_scoped_release release;
    const uint16_t* move = moves.data();
    size_t row = 0;
    size_t next = 0;
    for (size_t g = 0; g < games; ++g) {
      std::string name;
      try {
        History history = Game(fens[g], chess960(g) != 0).history;
        for (size_t i = 0; i < plies(g); ++i, ++move) {
          name = "position " + std::to_string(i) + ": ";
          game_rows.find_moves(history.current());
          if (i >= prefix(g)) {
            game_rows.encode_current(history, asked.data() + row * width);
            const Position position = history.current();
            for (; next < branches && branch_at(next) == row; ++next) {
              history.push(game_rows.legal[game_rows.place(position, branch_moves(next))]);
              branch_rows.find_moves(history.current());
              branch_rows.encode_current(history, asked.data() + (samples + next) * width);
              history.pop();
            }
            ++row;
          }
          history.push(game_rows.legal[game_rows.place(history.current(), *move)]);
        }
      } catch (const std::invalid_argument& error) {
        throw std::invalid_argument("game " + std::to_string(g) + ": " + name + error.what());
      }
    }
  }
  Rows& rows = game_rows.rows;
  const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  append(rows.positions, branch_rows.rows.positions);
  append(rows.transforms, branch_rows.rows.transforms);
  append(rows.keys, branch_rows.rows.keys);
  append(rows.plies, branch_rows.rows.plies);
  for (size_t b = 1; b < branch_rows.rows.move_offsets.size(); ++b) {
    rows.move_offsets.push_back(uint32_t(rows.policy.size()) + branch_rows.rows.move_offsets[b]);
  }
  append(rows.policy, branch_rows.rows.policy);
  append(rows.codes, branch_rows.rows.codes);
  append(rows.places, branch_rows.rows.places);
  const size_t count = rows.policy.size();
  const size_t total = samples + branches;
  return std::make_tuple(
      owned_array(std::move(rows.positions), total, sizeof(EncodedPosition)),
      owned_array(std::move(rows.transforms), total), owned_array(std::move(rows.keys), total),
      owned_array(std::move(rows.move_offsets), total + 1), owned_array(std::move(rows.policy), count),
      owned_array(std::move(rows.codes), count), owned_array(std::move(rows.places), total, width),
      owned_array(std::move(rows.plies), total));
}

}  // namespace

void bind_training(nb::module_& module) {
  module.def("encode_games", &encode_games, "fens"_a, "chess960"_a, "plies"_a, "prefix"_a, "moves"_a,
             "branch_at"_a, "branch_moves"_a, "asked"_a, "input_format"_a, "history_fill"_a,
             R"(Play the moves of games and encode the positions before them, and branches.

fens: the games' starts. chess960: uint8 [g]. plies, prefix: uint16 [g], number of a game's moves, and of the
first ones whose positions are only history. moves: uint16 [sum of plies], codes from | to << 6 | promotion << 12
(none, knight, bishop, rook, queen), castling as the king's two-square move or as king takes rook. The n rows are
the other positions before moves. branch_at: uint32 [b], ascending: in these rows branch_moves, uint16 [b], are
played, too. Rows n to n + b - 1 of all results are for the positions after them.
asked: uint16 [n + b, k], codes of moves whose place among the legal moves is requested, 0 for none.

Returns (positions uint8 [n + b, 904], transforms int8 [n + b], keys uint64 [n + b] (as Game.key), move_offsets
uint32 [n + b + 1], policy uint16 [m], codes uint16 [m], places uint8 [n + b, k], plies uint32 [n + b] (as
Game.ply)): see `encode`. codes: of the legal moves (castling is king takes rook), parallel to their policy
indices. places: 255 for no move. Releases the GIL. Raises ValueError with game and position for an illegal
move, and with the game for an illegal start.)");
}

}  // namespace wavefront::engine
