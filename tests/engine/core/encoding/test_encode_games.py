# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole games encoded at once say what their positions say one by one."""

import numpy as np
import pytest

from engine._core import Game, encode, encode_games
from engine.apps.shards.move_codes import move_code
from tests.training.labels import NONE, encode_line, random_game

FORMATS = (1, 2, 3, 4, 5, 132, 133)
FILLS = ("no", "fen_only", "always")
KIWIPETE = "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1"


def codes(moves: list[str]) -> np.ndarray[tuple[int], np.dtype[np.uint16]]:
    return np.array([move_code(move) for move in moves], np.uint16)


@pytest.mark.parametrize("input_format", FORMATS)
@pytest.mark.parametrize("fill", FILLS)
def test_every_position_of_a_game_is_encoded_as_it_is_alone(input_format: int, fill: str) -> None:
    for seed, fen in enumerate((None, KIWIPETE, "8/2k5/8/8/3K4/8/4R3/8 w - - 10 60")):
        moves = random_game(seed, 120, fen).moves()
        asked = np.zeros((len(moves), 0), np.uint16)
        start = Game(fen)
        positions, transforms, keys, offsets, policy, _, _, plies = encode_line(
            start, codes(moves), *NONE, asked, input_format, fill
        )
        for ply, move in enumerate(moves):
            alone, transform, _, entries = encode([start], input_format, fill)
            assert np.array_equal(positions[ply], alone[0])
            assert transforms[ply] == transform[0]
            assert keys[ply] == start.key
            assert plies[ply] == start.ply
            assert np.array_equal(policy[offsets[ply] : offsets[ply + 1]], entries)
            start.push_uci(move)


def test_branches_follow_the_line_and_see_its_history() -> None:
    moves = ["e2e4", "e7e5", "g1f3", "b8c6"]
    at, branch = np.array([1, 3], np.uint32), codes(["c7c5", "d7d6"])
    asked = np.zeros((6, 1), np.uint16)
    asked[4, 0] = move_code("b1c3")
    positions, *_, places, _ = encode_line(Game(), codes(moves), at, branch, asked, 1, "fen_only")
    for row, line in ((4, ["e2e4", "c7c5"]), (5, ["e2e4", "e7e5", "g1f3", "d7d6"])):
        game = Game()
        for move in line:
            game.push_uci(move)
        assert np.array_equal(positions[row], encode([game], 1, "fen_only")[0][0])
    sicilian = Game()
    sicilian.push_uci("e2e4")
    sicilian.push_uci("c7c5")
    assert places[4, 0] == sicilian.legal_moves().index("b1c3")
    assert places[5, 0] == 255


@pytest.mark.parametrize("castling", ["e1g1", "e1h1"])
def test_castling_is_understood_in_both_spellings(castling: str) -> None:
    game = Game(KIWIPETE)
    asked = np.array([[move_code(castling)]], np.uint16)
    *_, places, _ = encode_line(game, codes([castling]), *NONE, asked, 1, "fen_only")
    assert places[0, 0] == game.legal_moves().index("e1g1")


@pytest.mark.parametrize("wrong", ["e2e5", "a1a2", "e7e8q", "e1g1"])
def test_an_illegal_move_is_named_with_its_position(wrong: str) -> None:
    moves = codes(["e2e4", "e7e5", wrong])
    with pytest.raises(ValueError, match=rf"position 2: .*{wrong} .*rnbqkbnr"):
        encode_line(Game(), moves, *NONE, np.zeros((3, 0), np.uint16), 1, "fen_only")
    with pytest.raises(ValueError, match=rf"position 0: .*{wrong}"):
        encode_line(Game(), moves[:1], *NONE, np.array([[move_code(wrong)]], np.uint16), 1, "fen_only")


@pytest.mark.parametrize("at", [[3], [1, 0]])
def test_branches_out_of_order_or_beyond_the_line_are_refused(at: list[int]) -> None:
    moves, branch = codes(["e2e4", "e7e5", "g1f3"]), (np.array(at, np.uint32), codes(["c7c5"] * len(at)))
    with pytest.raises(ValueError, match="branch_at"):
        encode_line(Game(), moves, *branch, np.zeros((3 + len(at), 0), np.uint16), 1, "fen_only")


def test_games_after_another_are_encoded_as_alone_without_their_prefixes() -> None:
    fens = [Game().fen(), KIWIPETE, Game().fen()]
    moves = [codes(random_game(9, most, fen).moves()) for most, fen in zip((30, 9, 50), fens, strict=True)]
    plies, prefix = np.array([*map(len, moves)], np.uint16), np.array([7, 0, len(moves[2])], np.uint16)
    asked = np.zeros((int((plies - prefix).sum()) + 2, 1), np.uint16)
    asked[0] = moves[0][7]
    at, branch = np.array([2, 23], np.uint32), np.array([moves[0][9], moves[1][0]])  # the games' own moves
    columns = fens, np.zeros(3, np.uint8), plies, prefix
    together = encode_games(*columns, np.concatenate(moves), at, branch, asked, 1, "fen_only")
    alone = []
    for fen, line in zip(fens, moves, strict=True):
        nothing = np.zeros((len(line), 1), np.uint16)
        alone.append(encode_line(Game(fen), line, *NONE, nothing, 1, "fen_only"))
    rows = [*range(7, 39), 10, 31]
    for column in (0, 1, 2, 7):  # positions, transforms, keys, plies
        assert np.array_equal(together[column], np.concatenate([each[column] for each in alone])[rows])
    assert alone[0][5][alone[0][3][7] + together[6][0, 0]] == moves[0][7]
    wrong = np.concatenate([moves[0], moves[1][:3], codes(["a1h8"]), *moves[1:]])[: plies.sum()]
    with pytest.raises(ValueError, match=r"game 1: position 3: .*a1h8"):
        encode_games(*columns, wrong, at, branch, asked, 1, "fen_only")
