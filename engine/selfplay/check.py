# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of training data: read each file, decode every position, replay every move."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import isnan
from pathlib import Path

import numpy as np

from engine._core import Game, policy_move
from engine.evaluation.encoding import encode_games
from engine.selfplay.chunk import TrainingDataError, read_chunk
from engine.selfplay.decode import black_to_move, game_of, transform_of
from engine.selfplay.training_record import (
    HISTORY_PLANES,
    VERSION,
    Info,
    Records,
    is_canonical,
    reverse_ranks,
)
from protocol.batch import POLICY_SIZE

INPUT_FORMATS = (1, 2, 3, 4, 5, 132, 133)
SUM_TOLERANCE = 1e-3
VALUE_TOLERANCE = 1e-4
FULL_HISTORY = 7
"""Number of earlier positions in the planes: after this many records, all of them are in the file."""


@dataclass(frozen=True, slots=True)
class CheckedGame:
    """A valid file. result: of White, 1, 0 or -1."""

    records: Records
    result: int
    adjudicated: bool
    length_limit: bool


def check_file(path: Path) -> CheckedGame:
    """Read and check a chunk file. Raises OSError, and TrainingDataError with reason and place."""
    return check_records(read_chunk(path))


def check_records(records: Records) -> CheckedGame:
    """Check the records of a game. Raises TrainingDataError."""
    for number, record in enumerate(records, 1):
        with _at(number):
            _check_fields(record)
    _check_constants(records)
    edited = bool((records["invariance_info"] & Info.DELETED).any())
    games = []
    for number, record in enumerate(records, 1):
        with _at(number):
            games.append(_check_position(record))
    result = _check_results(records)
    if not edited:
        _check_replay(records, games, result)
    info = int(records["invariance_info"][0])
    return CheckedGame(records, result, bool(info & Info.ADJUDICATED), bool(info & Info.LENGTH_LIMIT))


def training_files(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the given files, and for each folder all .gz files under it, in order."""
    for path in paths:
        if path.is_dir():
            yield from sorted(file for file in path.rglob("*.gz") if file.is_file())
        else:
            yield path


@contextmanager
def _at(number: int) -> Iterator[None]:
    """Add the record's number to errors in this context."""
    try:
        yield
    except TrainingDataError as error:
        raise TrainingDataError(f"record {number}: {error}") from None


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise TrainingDataError(message)


def _check_fields(record: np.void) -> None:
    """Check the fields of one record, without chess."""
    _require(record["version"] == VERSION, f"version {record['version']}, not {VERSION}")
    _require(record["input_format"] in INPUT_FORMATS, f"unknown input format {record['input_format']}")
    _require(record["dummy"] == 0, f"dummy is {record['dummy']}, not 0")
    _check_policy(record)
    for prefix in ("root", "best", "played", "orig"):
        _check_evaluation(record, prefix)
    _require(record["result_q"] in (-1.0, 0.0, 1.0), f"result_q is {record['result_q']}")
    drawn = record["result_q"] == 0
    _require(record["result_d"] == float(drawn), f"result_d {record['result_d']} contradicts result_q")
    _require(record["visits"] >= 1, "no visits")
    for name in ("plies_left", "policy_kld", "q_st"):
        value = float(record[name])
        _require(0 <= value < 1e6, f"{name} is {value}")


def _check_policy(record: np.void) -> None:
    probabilities = record["probabilities"]
    legal = probabilities >= 0
    illegal = probabilities == -1
    wrong = np.flatnonzero(~(legal | illegal) | (probabilities > 1 + SUM_TOLERANCE))
    if len(wrong):
        raise TrainingDataError(
            f"probability {probabilities[wrong[0]]} of move {wrong[0]}: neither -1 (illegal) nor from 0 to 1"
        )
    total = float(probabilities[legal].sum(dtype=np.float64))
    _require(abs(total - 1) <= SUM_TOLERANCE, f"probabilities add up to {total:.4f}")
    for name in ("played_idx", "best_idx"):
        index = int(record[name])
        _require(
            index < POLICY_SIZE and bool(legal[index]),
            f"{name} {index} is illegal",
        )


def _check_evaluation(record: np.void, prefix: str) -> None:
    q, d, m = (float(record[f"{prefix}_{name}"]) for name in "qdm")
    if prefix == "orig":
        q, d, m = (0.0 if isnan(value) else value for value in (q, d, m))
    in_range = abs(q) <= 1 + VALUE_TOLERANCE and -VALUE_TOLERANCE <= d <= 1 - abs(q) + VALUE_TOLERANCE
    _require(in_range, f"{prefix}_q {q:.4f} and {prefix}_d {d:.4f} are no win, draw and loss")
    _require(0 <= m < 1e6, f"{prefix}_m is {m}")


def _check_constants(records: Records) -> None:
    formats = np.unique(records["input_format"])
    _require(len(formats) == 1, f"several input formats: {formats.tolist()}")
    ends = np.unique(records["invariance_info"] & (Info.ADJUDICATED | Info.LENGTH_LIMIT))
    _require(len(ends) == 1, "the records disagree on whether the game was adjudicated")
    steps = np.diff(records["plies_left"].astype(np.float64))
    _require(
        bool((np.abs(steps + 1) < 1e-3).all()) or bool((records["invariance_info"] & Info.DELETED).any()),
        "plies_left does not count down ply by ply",
    )


def _check_position(record: np.void) -> Game:
    """Return the decoded position, whose legal moves and transform must be the record's."""
    game = game_of(record)
    batch, transforms = encode_games([game], input_format=int(record["input_format"]))
    transform = transform_of(record)
    _require(
        transform == transforms[0],
        f"board transform {transform}, but this position has {transforms[0]}",
    )
    legal = np.sort(batch.moves)
    marked = np.flatnonzero(record["probabilities"] >= 0)
    differing = np.setxor1d(legal, marked)
    if len(differing):
        kind = "illegal" if differing[0] in marked else "missing"
        raise TrainingDataError(f"policy entry {differing[0]} is {kind} in {game.fen()}")
    return game


def _check_results(records: Records) -> int:
    """Return White's result, which must be the same in all records."""
    signs = np.array([-1 if black_to_move(record) else 1 for record in records])
    results = np.unique(records["result_q"] * signs)
    _require(len(results) == 1, "the records disagree on the result")
    return int(results[0])


def _check_replay(records: Records, games: Sequence[Game], result: int) -> None:
    """Check that each played move leads to the next record's position and history, the last to the result."""
    replay = games[0].copy()
    input_format = int(records[0]["input_format"])
    for number, record in enumerate(records, 1):
        with _at(number):
            if number > 1:
                _check_same_position(replay, games[number - 1])
            if number > FULL_HISTORY:
                _check_history(record, replay, input_format, repetitions=records[0]["rule50_count"] == 0)
            replay.push_uci(policy_move(games[number - 1], int(record["played_idx"]), transform_of(record)))
    info = int(records["invariance_info"][0])
    if info & Info.ADJUDICATED:
        return
    _check_end(replay, result, history_known=records[0]["rule50_count"] == 0)


def _check_same_position(replayed: Game, stored: Game) -> None:
    there, here = (" ".join(game.fen().split()[:5]) for game in (replayed, stored))
    _require(there == here, f"the moves so far lead to {there}, but here is {here}")


def _check_history(record: np.void, replay: Game, input_format: int, *, repetitions: bool) -> None:
    batch, _ = encode_games([replay], input_format=input_format)
    expected = batch.positions["planes"][0][:HISTORY_PLANES]
    stored = reverse_ranks(np.asarray(record["planes"]))
    differing = np.flatnonzero(expected != stored)
    if not repetitions:  # Repetitions may refer to positions before the file.
        differing = differing[differing % 13 != 12]
        if is_canonical(input_format):
            return
    if len(differing):
        raise TrainingDataError(f"plane {differing[0]} does not show the game's history")


def _check_end(final: Game, result: int, *, history_known: bool) -> None:
    name, reason = final.result()
    value = {"white_won": 1, "black_won": -1, "draw": 0}.get(name)
    if value is None and result == 0 and not history_known and final.repetitions:
        return  # A threefold repetition with an occurrence before the first record.
    _require(value is not None, f"not adjudicated, but the game is not over in {final.fen()}")
    _require(value == result, f"the game ended by {reason} ({name}), but the result of White is {result}")


@dataclass(slots=True)
class Statistics:
    """Totals over checked games."""

    games: int = 0
    positions: int = 0
    white_wins: int = 0
    draws: int = 0
    black_wins: int = 0
    adjudicated: int = 0
    length_limit: int = 0
    shortest: int = 0
    longest: int = 0
    visits: int = 0
    policy_entropy: float = 0.0
    policy_kld: float = 0.0
    best_played: int = 0
    squared_error: float = 0.0
    input_formats: tuple[int, ...] = ()

    def add(self, game: CheckedGame) -> None:
        """Count a game."""
        records = game.records
        plies = len(records)
        self.shortest = plies if not self.games else min(self.shortest, plies)
        self.longest = max(self.longest, plies)
        self.games += 1
        self.positions += plies
        self.white_wins += game.result == 1
        self.draws += game.result == 0
        self.black_wins += game.result == -1
        self.adjudicated += game.adjudicated
        self.length_limit += game.length_limit
        self.visits += int(records["visits"].sum(dtype=np.int64))
        shares = np.maximum(records["probabilities"], 0).astype(np.float64)
        logarithms = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
        self.policy_entropy -= float((shares * logarithms).sum())
        self.policy_kld += float(records["policy_kld"].sum(dtype=np.float64))
        self.best_played += int((records["best_idx"] == records["played_idx"]).sum())
        self.squared_error += float(((records["root_q"] - records["result_q"]).astype(np.float64) ** 2).sum())
        self.input_formats = tuple(sorted({*self.input_formats, int(records["input_format"][0])}))

    def data(self) -> dict[str, object]:
        """Return the totals as JSON data, with sums as means per position."""
        positions = max(1, self.positions)
        return {
            "games": self.games,
            "positions": self.positions,
            "white_wins": self.white_wins,
            "draws": self.draws,
            "black_wins": self.black_wins,
            "adjudicated": self.adjudicated,
            "length_limit": self.length_limit,
            "plies": {
                "mean": self.positions / max(1, self.games),
                "shortest": self.shortest,
                "longest": self.longest,
            },
            "mean_visits": self.visits / positions,
            "mean_policy_entropy": self.policy_entropy / positions,
            "mean_policy_kld": self.policy_kld / positions,
            "best_move_played": self.best_played / positions,
            "root_q_mean_squared_error": self.squared_error / positions,
            "input_formats": list(self.input_formats),
        }
