# SPDX-License-Identifier: GPL-3.0-or-later
"""Deeply labelled positions for reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine._core import Game
from engine.apps.shards import Shard, ShardError, read_shard
from protocol.common.printing import failing_as
from training.config import TargetSettings
from training.data.reading import asked_moves, encoded_positions, played_through
from training.data.replay import games_at
from training.data.table import NO_PLACE
from training.errors import TrainingError
from training.evaluation import EncodedRows
from training.targets import label_wdl

LEAST_MOVES = 2
"""Positions with fewer legal moves are excluded."""


@dataclass(frozen=True, slots=True)
class DeepPositions:
    """n positions. rows: [n] row numbers in all shards together. best: [n] index of the best legal move.
    places: [n, L + 1] indices of the engine's listed moves and of the best; 255 for none. scores: [n, L + 1]
    their expected scores. value: [n] expected score of the position. branch: [n]. ply: [n] in the game."""

    shards: Sequence[Shard]
    rows: NDArray[np.int64]
    best: NDArray[np.uint8]
    places: NDArray[np.uint8]
    scores: NDArray[np.float32]
    value: NDArray[np.float32]
    branch: NDArray[np.bool_]
    ply: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def encoded(self, input_format: int) -> EncodedRows:
        """Return the positions encoded for a network of that input format."""
        parts, first = [], 0
        for shard in self.shards:
            count = shard.positions + shard.branches
            mine = self.rows[(self.rows >= first) & (self.rows < first + count)] - first
            parts.append(EncodedRows(*encoded_positions(shard, input_format)).rows(mine))
            first += count
        return EncodedRows.concatenate(parts)

    def games_after(self, moves: Mapping[int, int]) -> dict[int, Game]:
        """Return the games of positions (by number) after one more move, given as index of the legal move."""
        found: dict[int, Game] = {}
        for number, game in self.games(moves):
            game.push_uci(game.legal_moves()[moves[number]])
            found[number] = game
        return found

    def games(self, numbers: Iterable[int] | None = None) -> Iterator[tuple[int, Game]]:
        """Yield positions by number (default: all), with their history. The caller owns the games."""
        chosen = list(range(len(self)) if numbers is None else numbers)
        first = 0
        for shard in self.shards:
            wanted = {int(self.rows[number]) - first: number for number in chosen}
            for row, game in games_at(shard, wanted.keys()):
                yield wanted[row], game
            first += shard.positions + shard.branches


def read_positions(paths: Sequence[Path], most: int, seed: int) -> DeepPositions:
    """Return the positions with several legal moves in shards of labels. most: random sample size; 0: all.

    Raises TrainingError.
    """
    shards = []
    for path in paths:
        with failing_as(TrainingError, str(path), ShardError):
            shard = read_shard(path)
        if shard.kind != "labels":
            raise TrainingError(f"{path} holds searched games: positions labelled by an engine are needed")
        shards.append(shard)
    parts, first = [], 0
    for path, shard in zip(paths, shards, strict=True):
        with failing_as(TrainingError, str(path), ShardError):
            parts.append(_positions(shard, first))
        first += shard.positions + shard.branches
    lines = max((part[2].shape[1] for part in parts), default=1)
    joined = [
        np.concatenate([_widened(part[i], lines) if i in (2, 3) else part[i] for part in parts])
        for i in range(7)
    ]
    chosen = np.arange(len(joined[0]))
    if most and most < len(chosen):
        chosen = np.sort(np.random.default_rng(seed).choice(chosen, most, replace=False))
    if not len(chosen):
        raise TrainingError("there are no labelled positions with a choice of moves")
    return DeepPositions(shards, *(column[chosen] for column in joined))


def _positions(shard: Shard, first: int) -> tuple[NDArray[np.generic], ...]:
    """Return the fields of DeepPositions after `shards`, for one shard."""
    settings = TargetSettings()
    columns, rows = played_through(shard, asked_moves(shard), 1)
    given = shard.columns
    cp = np.concatenate([given["best_cp"], given["branch_best_cp"]])
    lines_cp = np.concatenate([given["lines_cp"], given["branch_lines_cp"]], axis=1)
    best, lines = rows.places[:, 0], rows.places[:, 1:]
    listed = (lines == best[:, None]).any(axis=1)
    places = np.concatenate([lines, np.where(listed, NO_PLACE, best)[:, None]], axis=1).astype(np.uint8)
    scores = np.stack([expected(label_wdl(each, rows.ply, settings)) for each in (*lines_cp, cp)], axis=1)
    keep = (np.diff(columns["move_start"]) >= LEAST_MOVES) & (best != NO_PLACE)
    branch = np.arange(len(best)) >= shard.positions
    row = first + np.arange(len(best))
    value = scores[:, -1]
    return tuple(column[keep] for column in (row, best, places, scores, value, branch, rows.ply))


def expected(wdl: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the expected scores of WDL, [n], 0 to 1."""
    return (wdl[:, 0] + wdl[:, 1] / 2).astype(np.float32)


def _widened(columns: NDArray[np.generic], width: int) -> NDArray[np.generic]:
    """Return [n, width]: columns [n, k] with the first one repeated in front."""
    missing = width - columns.shape[1]
    return np.concatenate([np.repeat(columns[:, :1], missing, axis=1), columns], axis=1)


MANY_MEN, FEW_MEN = 25, 12
"""Pieces from which a position counts as one of many, and up to which as one of few."""

CLOSE, CLEAR = 0.01, 0.05
"""Expected score between the first two lines: below CLOSE both moves are good, above CLEAR only one is."""

DECIDED = 0.4
"""Distance of the expected score from a half beyond which a position is decided."""


def kinds_of(positions: DeepPositions) -> dict[str, NDArray[np.bool_]]:
    """Return masks [n] by the name of the kind. A tactical best move captures, promotes or gives check."""
    men = np.zeros(len(positions), np.int64)
    tactical = np.zeros(len(positions), bool)
    for number, game in positions.games():
        move = game.legal_moves()[positions.best[number]]
        men[number] = game.men
        game.push_uci(move)
        tactical[number] = game.men < men[number] or len(move) > 4 or game.in_check
    gap = _gaps(positions)
    decided = np.abs(positions.value - 0.5) > DECIDED
    return {
        f"{MANY_MEN} men and more": men >= MANY_MEN,
        f"{FEW_MEN + 1} to {MANY_MEN - 1} men": (men > FEW_MEN) & (men < MANY_MEN),
        f"up to {FEW_MEN} men": men <= FEW_MEN,
        "best move quiet": ~tactical,
        "best move tactical": tactical,
        f"gap below {CLOSE:.0%}": gap < CLOSE,
        f"gap {CLOSE:.0%} to {CLEAR:.0%}": (gap >= CLOSE) & (gap <= CLEAR),
        f"gap above {CLEAR:.0%}": gap > CLEAR,
        "undecided": ~decided,
        "decided": decided,
    }


def _gaps(positions: DeepPositions) -> NDArray[np.float32]:
    """Return the expected score [n] between the best two of the listed moves."""
    scores = np.sort(np.where(positions.places != 255, positions.scores, -np.inf), axis=1)
    gap: NDArray[np.float32] = scores[:, -1] - scores[:, -2]
    return gap
