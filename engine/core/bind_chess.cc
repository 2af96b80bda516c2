// SPDX-License-Identifier: GPL-3.0-or-later
// Python bindings of the chess rules, the network input and the policy index.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "bind.h"
#include "bind_encoding.h"
#include "chess/fen.h"
#include "chess/game.h"
#include "chess/perft.h"
#include "chess/san.h"
#include "chess/uci_move.h"
#include "encoding/encoder.h"
#include "encoding/policy_index.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace wavefront::engine {

using namespace chess;

namespace {

constexpr int kMaxPerftDepth = 30;
constexpr int kTransforms = 8;

std::vector<std::string> legal_uci(const Game& game) {
  MoveList moves;
  game.current().legal_moves(moves);
  std::vector<std::string> names;
  for (const Move move : moves) names.push_back(move_to_uci(game.current(), move, game.chess960));
  return names;
}

std::vector<std::string> played_uci(const Game& game) {
  std::vector<std::string> names;
  for (size_t i = 0; i < game.moves.size(); ++i) {
    const Position& before = game.history.at(int(game.moves.size() - i));
    names.push_back(move_to_uci(before, game.moves[i], game.chess960));
  }
  return names;
}

const char* result_name(Result result) {
  switch (result) {
    case Result::kWhiteWon:
      return "white_won";
    case Result::kBlackWon:
      return "black_won";
    case Result::kDraw:
      return "draw";
    case Result::kUndecided:
      break;
  }
  return "undecided";
}

int checked_transform(int transform) {
  if (transform < 0 || transform >= kTransforms) {
    throw std::invalid_argument("transform " + std::to_string(transform) + " is not from 0 to 7");
  }
  return transform;
}

auto encode_games(const std::vector<const Game*>& games, int input_format, const nb::str& history_fill) {
  const InputFormat format = checked_format(input_format);
  const HistoryFill fill = checked_fill(history_fill);
  std::vector<uint8_t> positions(games.size() * sizeof(EncodedPosition));
  std::vector<int8_t> transforms;
  std::vector<uint32_t> move_offsets{0};
  std::vector<uint16_t> indices;
  for (size_t i = 0; i < games.size(); ++i) {
    if (!games[i]) throw std::invalid_argument("games[" + std::to_string(i) + "] is None");
    EncodedPosition encoded;
    const int transform = encode(games[i]->history, format, fill, encoded);
    std::memcpy(&positions[i * sizeof(encoded)], &encoded, sizeof(encoded));
    transforms.push_back(int8_t(transform));
    MoveList moves;
    const Position& position = games[i]->current();
    position.legal_moves(moves);
    for (const Move move : moves) indices.push_back(policy_index(move, position.side_to_move(), transform));
    move_offsets.push_back(uint32_t(indices.size()));
  }
  const size_t n = games.size();
  const size_t moves = indices.size();
  return std::make_tuple(owned_array(std::move(positions), n, sizeof(EncodedPosition)),
                         owned_array(std::move(transforms), n), owned_array(std::move(move_offsets), n + 1),
                         owned_array(std::move(indices), moves));
}

int checked_depth(int depth, int minimum) {
  if (depth < minimum || depth > kMaxPerftDepth) {
    throw std::invalid_argument("depth " + std::to_string(depth) + " is not from " + std::to_string(minimum) +
                                " to " + std::to_string(kMaxPerftDepth));
  }
  return depth;
}

uint64_t game_perft(const Game& game, int depth) {
  checked_depth(depth, 0);
  const Position position = game.current();
  nb::gil_scoped_release release;
  return perft(position, depth);
}

std::vector<std::pair<std::string, uint64_t>> game_perft_divide(const Game& game, int depth) {
  checked_depth(depth, 1);
  const Position position = game.current();
  const bool chess960 = game.chess960;
  nb::gil_scoped_release release;
  std::vector<std::pair<std::string, uint64_t>> counts;
  for (const auto& [move, nodes] : perft_divide(position, depth)) {
    counts.emplace_back(move_to_uci(position, move, chess960), nodes);
  }
  return counts;
}

void bind_game(nb::module_& module) {
  nb::class_<Game>(module, "Game", R"(A game of chess: a start position, the moves played, and all rules.

Game(fen=None, chess960=False) starts from a FEN, or from the initial position. Moves are UCI text. Castling
is written e1g1, with chess960 king takes rook (e1h1). Both notations are accepted.

    >>> game = Game()
    >>> game.push_uci("e2e4")
    >>> game.fen()
    'rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1'

allow_opponent_check: accept a FEN whose side to move could take the king, as lc0 does. Such a position can
be encoded and evaluated (playable is False), but no move can be played.

Raises ValueError with the reason for an illegal FEN.)")
      .def(
          "__init__",
          [](Game* self, const std::optional<nb::str>& fen, bool chess960, bool allow_opponent_check) {
            if (fen) {
              new (self) Game(utf8(*fen), chess960,
                              allow_opponent_check ? OpponentCheck::kAllow : OpponentCheck::kRefuse);
            } else {
              new (self) Game();
              self->chess960 = chess960;
            }
          },
          "fen"_a = nb::none(), "chess960"_a = false, nb::kw_only(), "allow_opponent_check"_a = false)
      .def_static(
          "read",
          [](const nb::str& fen, bool chess960, bool allow_opponent_check) {
            std::vector<std::string> corrections;
            const auto check = allow_opponent_check ? OpponentCheck::kAllow : OpponentCheck::kRefuse;
            const Position start = read_fen(utf8(fen), chess960, check, corrections);
            return std::make_pair(Game(start, chess960), corrections);
          },
          "fen"_a, "chess960"_a = false, nb::kw_only(), "allow_opponent_check"_a = false,
          R"(Read an untrusted FEN, and return the game and its corrections, a phrase each.

It corrects missing fields after the side to move, castling rights without king or rook, a wrong en-passant
square, and counters out of range. Pieces and the side to move never change.
Raises ValueError for any other fault.)")
      .def(
          "push_uci", [](Game& game, const nb::str& move) { game.push_uci(utf8(move)); }, "move"_a,
          "Play a legal move. Raises ValueError, and leaves the game unchanged, for any other text.")
      .def(
          "push_san",
          [](Game& game, const nb::str& move) {
            const Move parsed = parse_san(game.current(), utf8(move));
            const std::string uci = move_to_uci(game.current(), parsed, game.chess960);
            game.push(parsed);
            return uci;
          },
          "move"_a,
          "Play a legal move in SAN without signs of check, and return its UCI text. Raises ValueError.")
      .def(
          "san",
          [](const Game& game, const nb::str& move) {
            return move_to_san(game.current(), parse_uci(game.current(), utf8(move)));
          },
          "move"_a, "Return a legal move, given as UCI text, as SAN. Raises ValueError.")
      .def(
          "pop",
          [](Game& game) {
            const Move move = game.pop();
            return move_to_uci(game.current(), move, game.chess960);
          },
          "Take the last move back and return it. Raises ValueError if no move was played.")
      .def("legal_moves", &legal_uci,
           "Return the legal moves, in a fixed order; empty after mate and stalemate.")
      .def("moves", &played_uci, "Return the moves played so far.")
      .def(
          "fen", [](const Game& game) { return to_fen(game.current(), game.chess960); },
          "Return the current position, with the en-passant square only if a capture there is legal.")
      .def(
          "start_fen", [](const Game& game) { return to_fen(game.start, game.chess960); },
          "Return the start position in the format of fen().")
      .def(
          "copy", [](const Game& game) { return Game(game); }, "Return an independent copy.")
      .def("__copy__", [](const Game& game) { return Game(game); })
      .def(
          "__deepcopy__", [](const Game& game, nb::handle) { return Game(game); }, "memo"_a)
      .def(
          "result",
          [](const Game& game) {
            const Outcome outcome = game.outcome();
            return std::make_pair(std::string(result_name(outcome.result)), std::string(outcome.reason));
          },
          R"(Return the state of the game: ("undecided" | "white_won" | "black_won" | "draw", reason).

The reason is "checkmate", "stalemate", "insufficient material", "fifty-move rule" (100 plies),
"threefold repetition", or "" while undecided. Mate precedes the 50-move rule.)")
      .def_prop_ro(
          "chess960", [](const Game& game) { return game.chess960; }, "True if Chess960 rules apply.")
      .def_prop_ro(
          "turn",
          [](const Game& game) { return game.current().side_to_move() == kWhite ? "white" : "black"; },
          "The side to move, \"white\" or \"black\".")
      .def_prop_ro(
          "in_check", [](const Game& game) { return game.current().in_check(); },
          "True if the side to move is in check.")
      .def_prop_ro("playable", &Game::playable, "False if the side to move could take the king.")
      .def_prop_ro(
          "rule50", [](const Game& game) { return game.current().rule50(); },
          "Plies since the last capture or pawn move.")
      .def_prop_ro(
          "ply", [](const Game& game) { return game.current().ply(); },
          "Plies since the beginning of the game, counting from the FEN's move number.")
      .def_prop_ro(
          "men", [](const Game& game) { return game.current().men(); }, "Men on the board, both sides.")
      .def_prop_ro(
          "has_castling_rights", [](const Game& game) { return game.current().has_castling_rights(); },
          "True if either side may still castle.")
      .def_prop_ro(
          "repetitions", [](const Game& game) { return game.history.repetitions(); },
          "Number of earlier occurrences of the position, by the rules (0, 1, 2 ...).")
      .def_prop_ro(
          "plies_since_repetition", [](const Game& game) { return game.history.plies_since_repetition(); },
          "Plies since the last occurrence of the position; 0 if there is none.")
      .def_prop_ro(
          "key", [](const Game& game) { return game.current().key(); },
          "64-bit key, equal for positions that are equal by the rules of repetition.");
}

}  // namespace

void bind_chess(nb::module_& module) {
  bind_game(module);

  module.def("encode", &encode_games, "games"_a, "input_format"_a, "history_fill"_a,
             R"(Encode the games' current positions as input of an lc0 network.

input_format: the network's (1, 2, 3, 4, 5, 132 or 133). history_fill: "no", "fen_only" or "always".
Returns (positions uint8 [n, 904], transforms int8 [n], move_offsets uint32 [n + 1], moves uint16 [m]): the
encoded positions (protocol.batch.POSITION_DTYPE), the board transform of each (0 to 7), and the policy
indices of the legal moves, those of position i at move_offsets[i] to move_offsets[i + 1] in the order of
Game.legal_moves(). Raises ValueError for an unknown format or fill.)");

  module.def(
      "policy_index",
      [](const Game& game, const nb::str& move, int transform) {
        const Move parsed = parse_uci(game.current(), utf8(move));
        return int(policy_index(parsed, game.current().side_to_move(), checked_transform(transform)));
      },
      "game"_a, "move"_a, "transform"_a = 0,
      "Return the policy index (0 to 1857) of a legal move under a board transform. Raises ValueError.");
  module.def(
      "policy_move",
      [](const Game& game, int index, int transform) {
        if (index < 0 || index >= kPolicySize) {
          throw std::invalid_argument("policy index " + std::to_string(index) + " is not from 0 to 1857");
        }
        const Position& position = game.current();
        const Move move = policy_move(position, index, checked_transform(transform));
        MoveList legal;
        position.legal_moves(legal);
        if (!legal.contains(move)) {
          throw std::invalid_argument("policy index " + std::to_string(index) + " is no legal move here");
        }
        return move_to_uci(position, move, game.chess960);
      },
      "game"_a, "index"_a, "transform"_a = 0,
      "Return the legal move of a policy index. Raises ValueError if there is none.");
  module.def(
      "policy_moves",
      [] {
        std::vector<std::string> names;
        for (int index = 0; index < kPolicySize; ++index) names.push_back(policy_move_name(index));
        return names;
      },
      "Return the moves of lc0's 1858 policy entries, in the view of the side to move (castling e1h1,\n"
      "promotion to knight without suffix).");

  module.def(
      "perft", &game_perft, "game"_a, "depth"_a,
      "Count the legal move sequences of `depth` plies (0 to 30). Releases the GIL. Raises ValueError.");
  module.def(
      "perft_divide", &game_perft_divide, "game"_a, "depth"_a,
      "Return (move, count) for each first move. depth: 1 to 30. Releases the GIL. Raises ValueError.");
}

}  // namespace wavefront::engine
