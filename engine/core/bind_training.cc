// SPDX-License-Identifier: GPL-3.0-or-later
// Python binding for training: encodes all positions of a game at once.
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>

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

// The results of `encode_line` before conversion to arrays.
struct Line {
  std::vector<uint8_t> positions;
  std::vector<int8_t> transforms;
  std::vector<uint64_t> keys;
  std::vector<uint32_t> move_offsets{0};
  std::vector<uint16_t> policy;
  std::vector<uint16_t> codes;
  std::vector<uint8_t> places;
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

class LineEncoder {
 public:
  // name: of a position in messages.
  LineEncoder(const char* name, InputFormat format, HistoryFill fill, size_t positions, size_t asked)
      : name_(name), format_(format), fill_(fill), asked_(asked) {
    line.positions.resize(positions * sizeof(EncodedPosition));
    line.places.reserve(positions * asked);
  }

  // Encodes the current position, and leaves its legal moves in `legal`.
  void encode_current(const History& history, const uint16_t* asked) {
    EncodedPosition encoded;
    const Position& position = history.current();
    const int transform = encode(history, format_, fill_, encoded);
    std::memcpy(&line.positions[count_++ * sizeof(encoded)], &encoded, sizeof(encoded));
    line.transforms.push_back(int8_t(transform));
    line.keys.push_back(position.key());
    legal.clear();
    position.legal_moves(legal);
    for (const Move move : legal) {
      line.policy.push_back(policy_index(move, position.side_to_move(), transform));
      line.codes.push_back(move.raw());
    }
    line.move_offsets.push_back(uint32_t(line.policy.size()));
    for (size_t k = 0; k < asked_; ++k) {
      line.places.push_back(asked[k] ? uint8_t(place(position, asked[k])) : kNotAsked);
    }
  }

  // Returns the index of a move in `legal`, the legal moves of the current position.
  int place(const Position& position, uint16_t code) const {
    const int found = place_of(position, legal, code);
    if (found < 0) {
      throw std::invalid_argument(name_ + (" " + std::to_string(count_ - 1)) + ": the move " +
                                  code_text(code) + " is not legal in " + to_fen(position, false));
    }
    return found;
  }

  MoveList legal;
  Line line;

 private:
  std::string name_;
  InputFormat format_;
  HistoryFill fill_;
  size_t asked_;
  size_t count_ = 0;
};

auto encode_line(const Game& start, const Column<uint16_t>& moves, const Column<uint32_t>& branch_at,
                 const Column<uint16_t>& branch_moves, const Codes& asked, int input_format,
                 const nb::str& history_fill) {
  const InputFormat format = checked_format(input_format);
  const HistoryFill fill = checked_fill(history_fill);
  const size_t length = moves.shape(0);
  const size_t branches = branch_at.shape(0);
  const size_t total = length + branches;
  if (branch_moves.shape(0) != branches) throw std::invalid_argument("branch_at and branch_moves differ");
  if (asked.shape(0) != total) throw std::invalid_argument("asked has not one row for each position");
  for (size_t b = 0; b < branches; ++b) {
    if (branch_at(b) >= length || (b && branch_at(b) < branch_at(b - 1))) {
      throw std::invalid_argument("branch_at is not ascending, or beyond the last position");
    }
  }
  const size_t width = asked.shape(1);
  LineEncoder main("position", format, fill, length, width);
  LineEncoder side("branch", format, fill, branches, width);
  {
    nb::gil_scoped_release release;
    History history = start.history;
    const uint16_t* row = asked.data();
    const uint16_t* branch_row = asked.data() + length * width;
    size_t next = 0;
    for (size_t i = 0; i < length; ++i) {
      main.encode_current(history, row + i * width);
      const Position position = history.current();
      for (; next < branches && branch_at(next) == i; ++next) {
        history.push(main.legal[main.place(position, branch_moves(next))]);
        side.encode_current(history, branch_row + next * width);
        history.pop();
      }
      history.push(main.legal[main.place(position, moves(i))]);
    }
  }
  Line& line = main.line;
  const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  append(line.positions, side.line.positions);
  append(line.transforms, side.line.transforms);
  append(line.keys, side.line.keys);
  for (size_t b = 1; b < side.line.move_offsets.size(); ++b) {
    line.move_offsets.push_back(uint32_t(line.policy.size()) + side.line.move_offsets[b]);
  }
  append(line.policy, side.line.policy);
  append(line.codes, side.line.codes);
  append(line.places, side.line.places);
  const size_t count = line.policy.size();
  return std::make_tuple(
      owned_array(std::move(line.positions), total, sizeof(EncodedPosition)),
      owned_array(std::move(line.transforms), total), owned_array(std::move(line.keys), total),
      owned_array(std::move(line.move_offsets), total + 1), owned_array(std::move(line.policy), count),
      owned_array(std::move(line.codes), count), owned_array(std::move(line.places), total, width));
}

}  // namespace

void bind_training(nb::module_& module) {
  module.def("encode_line", &encode_line, "start"_a, "moves"_a, "branch_at"_a, "branch_moves"_a, "asked"_a,
             "input_format"_a, "history_fill"_a,
             R"(Play moves from a game's current position and encode the position before each, and branches.

moves: uint16 [n], codes from | to << 6 | promotion << 12 (none, knight, bishop, rook, queen), castling as the
king's two-square move or as king takes rook. branch_at: uint32 [b], ascending: in these positions (0 to n - 1)
branch_moves, uint16 [b], are played, too. Rows n to n + b - 1 of all results are for the positions after them.
asked: uint16 [n + b, k], codes of moves whose place among the legal moves is requested, 0 for none.

Returns (positions uint8 [n + b, 904], transforms int8 [n + b], keys uint64 [n + b] (as Game.key), move_offsets
uint32 [n + b + 1], policy uint16 [m], codes uint16 [m], places uint8 [n + b, k]): see `encode`. codes: of the
legal moves (castling is king takes rook), parallel to their policy indices. places: 255 for no move.
`start` is not changed. Releases the GIL. Raises ValueError with the position for an illegal move.)");
}

}  // namespace wavefront::engine
