# SPDX-License-Identifier: GPL-3.0-or-later
"""Input planes and policy indices are lc0's, bit for bit, and so are moves and results of its positions."""

import json
from functools import cache
from typing import Any

import chess
import numpy as np
import pytest

from engine._core import Game, encode, policy_index, policy_move, policy_moves
from engine.evaluation.link.encoding import encode_games
from protocol.batch import POSITION_DTYPE
from tests.engine.core.chess.games import random_games
from tests.engine.core.encoding import reference_encoder
from tests.engine.core.encoding.reference_encoder import FILLS, FORMATS
from tests.paths import DATA

pytestmark = pytest.mark.integration

LC0 = DATA / "lc0"


@cache
def golden_positions() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (LC0 / "positions.jsonl").read_text("utf-8").splitlines()]


@cache
def golden_games() -> list[Game]:
    """lc0 accepts six positions among these whose side to move could take the king."""
    games = []
    for position in golden_positions():
        game = Game(position["start_fen"], position["chess960"], allow_opponent_check=True)
        for move in position["moves"]:
            game.push_uci(move)
        games.append(game)
    return games


@cache
def tables() -> dict[str, Any]:
    result: dict[str, Any] = json.loads((LC0 / "tables.json").read_text("utf-8"))
    return result


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("input_format", FORMATS)
def test_planes_of_the_golden_positions(input_format: int, fill: str) -> None:
    positions, transforms, _, _ = encode(golden_games(), input_format, fill)
    records = positions.view(POSITION_DTYPE).reshape(-1)
    with np.load(LC0 / "inputs.npz") as inputs:
        masks = inputs[f"mask_{input_format}_{fill}"]
        values = inputs[f"value_{input_format}_{fill}"]
        np.testing.assert_array_equal(records["planes"], masks)
        np.testing.assert_array_equal(records["rule50"], values[:, 109])
        np.testing.assert_array_equal(transforms, inputs[f"transform_{input_format}_{fill}"])
    assert not records["reserved"].any()


@pytest.mark.parametrize("number", range(150))
def test_state_of_the_golden_positions(number: int) -> None:
    position, game = golden_positions()[number], golden_games()[number]
    assert game.fen() == position["final_fen"]
    assert sorted(game.legal_moves()) == sorted(
        position["legal_uci_960" if position["chess960"] else "legal_uci"]
    )
    assert game.in_check == position["in_check"]
    assert game.rule50 == position["rule50"]
    assert game.repetitions == position["repetitions"]
    assert game.plies_since_repetition == position["plies_since_prev_repetition"]
    assert game.result()[0] == position["result"]


@pytest.mark.parametrize(
    ("key", "formats"), [("policy_index", (1, 2)), ("policy_index_canonical", (3, 5, 132))]
)
def test_policy_indices_of_the_golden_positions(key: str, formats: tuple[int, ...]) -> None:
    for position, game in zip(golden_positions(), golden_games(), strict=True):
        moves = position["legal_uci_960" if position["chess960"] else "legal_uci"]
        expected = dict(zip(moves, position[key], strict=True))
        for input_format in formats:
            _, transforms, offsets, indices = encode([game], input_format, "no")
            assert dict(zip(game.legal_moves(), indices.tolist(), strict=True)) == expected
            assert offsets.tolist() == [0, len(moves)]
            for move, index in expected.items():
                assert policy_index(game, move, int(transforms[0])) == index
                assert policy_move(game, index, int(transforms[0])) == move


def test_policy_moves_are_those_of_lc0() -> None:
    assert policy_moves() == tables()["policy_moves"]


def test_transformed_policy_indices_are_those_of_lc0() -> None:
    # Every queen and knight move of White and Black from some square occurs in these positions' random games.
    compared = 0
    for game, _ in random_games(seed=5, games=12, plies=40):
        for move in game.legal_moves():
            plain = policy_index(game, move, 0)
            for transform in range(1, 8):
                # lc0 never meets promotions in a board that is mirrored or transposed: no pawns there.
                if transform > 1 and len(policy_moves()[plain]) == 5:
                    continue
                expected = tables()["transformed_index"][str(transform)][plain]
                assert policy_index(game, move, transform) == expected
                compared += 1
    assert compared > 10_000


@pytest.mark.parametrize("chess960", [False, True])
def test_random_games_are_encoded_like_the_slow_encoder(chess960: bool) -> None:
    start = chess.Board()
    compared = 0
    transforms_seen = set()
    for game, board in random_games(seed=6, games=12, plies=90, chess960=chess960):
        if not board.move_stack:
            start = board.copy()
        if len(board.move_stack) % 14 > 1:
            continue
        snapshots = reference_encoder.snapshots(start, list(board.move_stack))
        for input_format in FORMATS:
            for fill in FILLS:
                positions, transforms, _, _ = encode([game], input_format, fill)
                record = positions.view(POSITION_DTYPE).reshape(-1)[0]
                planes, rule50, transform = reference_encoder.encode(snapshots, input_format, fill)
                where = f"{game.start_fen()} moves {game.moves()} format {input_format} fill {fill}"
                assert transforms[0] == transform, where
                assert record["planes"].tolist() == planes, where
                assert record["rule50"] == rule50, where
                transforms_seen.add(transform)
                compared += 1
    assert compared > 1000
    if not chess960:
        assert len(transforms_seen) >= 6


def test_lc0_repetition_differs_after_a_pinned_en_passant() -> None:
    game = Game("4k3/3p4/8/K3P2r/8/8/8/8 b - - 0 1")
    for move in ["d7d5", "a5a6", "e8e7", "a6a5", "e7e8"]:
        game.push_uci(move)
    assert game.repetitions == 1
    positions, *_ = encode([game], 1, "no")
    assert positions.view(POSITION_DTYPE).reshape(-1)[0]["planes"][12] == 0


def test_no_games_become_an_empty_batch() -> None:
    batch, transforms = encode_games([], input_format=1)
    assert len(batch) == len(batch.moves) == len(transforms) == 0
    assert batch.move_offsets.tolist() == [0]


@pytest.mark.parametrize(
    ("input_format", "fill", "reason"),
    [
        (6, "no", "input format 6 is none of"),
        (0, "no", "input format 0"),
        (1, "never", "history_fill is none of"),
    ],
)
def test_refuses_unknown_formats_and_fills(input_format: int, fill: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        encode([Game()], input_format, fill)


@pytest.mark.parametrize(
    ("index", "transform", "reason"),
    [
        (-1, 0, "policy index -1 is not from 0 to 1857"),
        (1858, 0, "policy index 1858 is not from 0 to 1857"),
        (0, 8, "transform 8 is not from 0 to 7"),
        (0, -1, "transform -1 is not from 0 to 7"),
        (0, 0, "policy index 0 is no legal move"),
    ],
)
def test_refuses_policy_entries_that_are_no_move(index: int, transform: int, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        policy_move(Game(), index, transform)
