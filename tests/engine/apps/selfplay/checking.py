# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks that training data are sound: numbers, positions, legal moves, and a replay of the game."""

import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engine._core import Game, policy_move
from engine.apps.shards import black_to_move, transform_of
from engine.apps.shards.training_record import (
    HISTORY_PLANES,
    RECORD_DTYPE,
    VERSION,
    Info,
    Records,
    is_canonical,
    reverse_ranks,
)
from engine.evaluation.link.encoding import encode_games
from training.data.decode import fen_of

FULL_HISTORY = 7
"""Number of earlier positions in the planes: after this many records, all of them are in the file."""


@dataclass(frozen=True, slots=True)
class CheckedGame:
    """A sound game. result: of White, 1, 0 or -1."""

    records: Records
    result: int
    adjudicated: bool
    length_limit: bool


def game_of(record: np.void) -> Game:
    """A game that starts with the record's position, with castling by the rules of Chess960."""
    return Game(fen_of(record), True)


def check_file(path: Path) -> CheckedGame:
    return check_records(np.frombuffer(gzip.decompress(path.read_bytes()), RECORD_DTYPE))


def check_records(records: Records) -> CheckedGame:
    for record in records:
        _check_fields(record)
    assert len(np.unique(records["input_format"])) == 1
    assert len(np.unique(records["invariance_info"] & (Info.ADJUDICATED | Info.LENGTH_LIMIT))) == 1
    assert np.abs(np.diff(records["plies_left"].astype(np.float64)) + 1).max(initial=0) < 1e-3
    games = [_checked_position(record) for record in records]
    (result,) = {int(record["result_q"] * (-1 if black_to_move(record) else 1)) for record in records}
    _check_replay(records, games, result)
    info = int(records["invariance_info"][0])
    return CheckedGame(records, result, bool(info & Info.ADJUDICATED), bool(info & Info.LENGTH_LIMIT))


def _check_fields(record: np.void) -> None:
    assert record["version"] == VERSION
    assert record["dummy"] == 0
    shares = record["probabilities"]
    legal = shares >= 0
    assert (legal | (shares == -1)).all()
    assert abs(float(shares[legal].sum(dtype=np.float64)) - 1) <= 1e-3
    assert legal[record["played_idx"]] and legal[record["best_idx"]]
    for prefix in ("root", "best", "played", "orig"):
        q, d, m = (float(record[f"{prefix}_{name}"]) for name in "qdm")
        if prefix == "orig":
            q, d, m = np.nan_to_num((q, d, m))
        assert abs(q) <= 1 + 1e-4 and -1e-4 <= d <= 1 - abs(q) + 1e-4 and 0 <= m < 1e6, prefix
    assert record["result_q"] in (-1.0, 0.0, 1.0)
    assert record["result_d"] == float(record["result_q"] == 0)
    assert record["visits"] >= 1
    for name in ("plies_left", "policy_kld", "q_st"):
        assert 0 <= float(record[name]) < 1e6, name


def _checked_position(record: np.void) -> Game:
    """The decoded position, whose legal moves and transform are the record's."""
    game = game_of(record)
    batch, transforms = encode_games([game], input_format=int(record["input_format"]))
    assert transform_of(record) == transforms[0]
    assert (np.sort(batch.moves) == np.flatnonzero(record["probabilities"] >= 0)).all()
    return game


def _check_replay(records: Records, games: list[Game], result: int) -> None:
    """Each played move leads to the next record's position and history, the last one to the result."""
    replay = games[0].copy()
    history_known = records[0]["rule50_count"] == 0
    for number, (record, game) in enumerate(zip(records, games, strict=True)):
        assert replay.fen().split()[:5] == game.fen().split()[:5]
        if number >= FULL_HISTORY:
            _check_history(record, replay, repetitions=history_known)
        replay.push_uci(policy_move(game, int(record["played_idx"]), transform_of(record)))
    if not int(records["invariance_info"][0]) & Info.ADJUDICATED:
        value = {"white_won": 1, "black_won": -1, "draw": 0}.get(replay.result()[0])
        # Otherwise an occurrence of a threefold repetition may be before the first record.
        assert value == result or (value is None and result == 0 and not history_known and replay.repetitions)


def _check_history(record: np.void, replay: Game, *, repetitions: bool) -> None:
    batch, _ = encode_games([replay], input_format=int(record["input_format"]))
    expected = batch.positions["planes"][0][:HISTORY_PLANES]
    differing = np.flatnonzero(expected != reverse_ranks(np.asarray(record["planes"])))
    if not repetitions:  # Repetitions may refer to positions before the file.
        differing = differing[differing % 13 != 12]
    assert not len(differing) or (not repetitions and is_canonical(int(record["input_format"])))
