# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads shards as tables: the core replays the games and encodes each position and its legal moves."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine._core import Tablebases, encode_games
from engine.apps.shards import (
    NAT_STEPS,
    NO_SHARE,
    SUFFIX,
    UNKNOWN_PLIES,
    Shard,
    ShardError,
    read_header,
    read_shard,
    wdl_of,
)
from protocol import POSITION_DTYPE
from protocol.common.printing import reason
from training import targets
from training.config import DataSettings, TargetSettings
from training.data.annotations import prior_identity, usable
from training.data.packed import PackedPositions, pack_positions
from training.data.table import LISTED, NO_PLACE, PositionTable
from training.data.tablebases import open_tablebases, results
from training.errors import TrainingError

UNDECIDED = 3
"""Result of a game whose end is unknown."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Origin of each row of a shard: samples along the games first, then branches."""

    game: NDArray[np.int64]  # number of the game
    ply: NDArray[np.int64]  # in the game, starting at the FEN's move number; odd when Black is to move
    places: NDArray[np.uint8]  # [n, k] of the requested moves


@dataclass(frozen=True, slots=True)
class ReadShard:
    """A shard's positions."""

    file: str
    table: PositionTable


def shards_of(paths: Sequence[str | Path], window: int = 0) -> list[Path]:
    """Return the shards in folders and files. Raises TrainingError if there are none.
    window: take only the newest shards of each folder that hold that many positions; 0: all."""
    found: list[Path] = []
    for path in map(Path, paths):
        files = sorted(path.rglob(f"*{SUFFIX}")) if path.is_dir() else [path]
        if not files or not files[0].exists():
            raise TrainingError(f"{path}: no training positions there; wavefront-training import makes them")
        found += last_of(files, window) if window else files
    return found


def last_of(files: list[Path], window: int) -> list[Path]:
    """Return the last shards of a list, as many as hold that many positions."""
    kept: list[Path] = []
    positions = 0
    for file in reversed(files):
        if positions >= window:
            break
        kept.append(file)
        positions += count_positions(file)
    return kept[::-1]


def count_positions(path: Path) -> int:
    """Return the number of a shard's positions; 0 if it is broken, which its reader reports."""
    try:
        header = read_header(path)
    except (ShardError, OSError):
        return 0
    return int(header["positions"]) + int(header["branches"])


def _to_come(path: Path) -> bool:
    """Return True for a folder without shards, and for a missing path, which may become one."""
    return not any(path.rglob(f"*{SUFFIX}")) if path.is_dir() else not path.exists()


def shard_files(data: DataSettings) -> list[str]:
    """Return the shards that the settings name. Folders to be followed may still be empty.

    Raises TrainingError if there are none.
    """
    main = [path for path in data.main if not (data.follow_s and _to_come(Path(path)))]
    return [*map(str, shards_of(main, data.window))]


class ShardReader:
    """Converts shards to tables according to the settings. Several threads may use it."""

    def __init__(
        self,
        data: DataSettings,
        target: TargetSettings,
        *,
        input_format: int,
        seed: int,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Raises TrainingError if the prior or the tablebases cannot be read."""
        self._data, self._target = data, target
        self._input_format, self._seed = input_format, seed
        self._prior = prior_identity(target.prior, target.prior_nodes)
        self._tables = open_tablebases(target.tablebases, note)

    def read(self, file: str) -> PositionTable:
        """Return the positions of a shard, sampled by `sampling`. Raises ShardError and OSError."""
        shard = read_shard(Path(file))
        table = table_of(
            shard,
            self._data,
            self._target,
            input_format=self._input_format,
            prior=self._prior,
            tables=self._tables,
        )
        if self._data.sampling < 1:
            # Seeded by the games, not by the shard's index, which may change.
            seed = self._seed, zlib.crc32(shard.columns["moves"].tobytes())
            chance = np.random.default_rng(seed).random(len(table))
            table = table.rows((chance < self._data.sampling) | table.held_out)
        return table

    def read_all(self, files: Sequence[str], threads: int, note: Callable[[str], None]) -> list[ReadShard]:
        """Return the shards in order. Damaged ones are reported to `note` and skipped, as are empty ones.

        Raises TrainingError if none remain.
        """

        def read(file: str) -> ReadShard | None:
            try:
                return ReadShard(file, self.read(file))
            except (ShardError, OSError) as error:
                note(f"{file}: {reason(error)}; left out")
                return None

        with ThreadPoolExecutor(max(1, threads)) as pool:
            shards = [shard for shard in pool.map(read, files) if shard is not None and len(shard.table)]
        if not shards:
            raise TrainingError("there are no positions to train on: [data] main names folders of shards")
        for complaint in self.complaints():
            note(complaint)
        return shards

    def complaints(self) -> list[str]:
        """Return the tablebases' complaints since the last call."""
        return [] if self._tables is None else list(self._tables.take_complaints())


def table_of(
    shard: Shard,
    data: DataSettings,
    target: TargetSettings,
    *,
    input_format: int,
    prior: str = "",
    tables: Tablebases | None = None,
) -> PositionTable:
    """Return the positions of a shard.

    prior: name of the prior (`annotations.identity`). tables: override the WDL of positions they contain.
    Raises ShardError that names the game, for an illegal move or position.
    """
    asked = asked_moves(shard)
    columns, rows = played_through(shard, asked, input_format)
    count = shard.positions
    branch = np.arange(len(rows.game)) >= count
    annotated = usable(shard.annotated_by, prior, target.prior_nodes)
    columns["prior"] = np.zeros(len(columns["moves"]), np.uint8)
    if annotated:
        columns["prior"] = _for_moves(shard, "prior", columns).copy()
    if shard.kind == "labels":
        made = _of_labels(shard, rows, branch, target)
        if annotated:
            own = wdl_of(shard.columns["prior_wdl"])
            made["wdl"] = targets.mixed(made["wdl"], own, target.prior_value_share)
    else:
        # Another search of a searched position replaces the one that chose the move of the game.
        replaced = annotated and target.prior_nodes > 0
        policy = columns["prior"] if replaced else _for_moves(shard, "policy", columns)
        columns["shares"] = _shares(policy, columns["move_start"])
        made = _of_search(shard, rows, wdl_of(shard.columns["prior_wdl" if replaced else "wdl"]), target)
    if tables is not None:
        made["wdl"] = targets.rescored(made["wdl"], results(shard, columns["boards"], tables))
    held_out = _held_out(shard, data.holdout)[rows.game]
    score = np.abs(made["score"])
    taken = np.where(score > 1500, data.decided_share, np.where(score > 600, data.won_share, 1.0))
    del made["score"]
    return PositionTable(
        **columns,
        **made,
        annotated=np.full(len(branch), annotated),
        searched=np.full(len(branch), shard.kind == "search"),
        taken=taken.astype(np.float32),
        held_out=held_out,
        branch=branch,
    )


def encoded_positions(
    shard: Shard, input_format: int
) -> tuple[PackedPositions, NDArray[np.int64], NDArray[np.uint16]]:
    """Return the packed rows of a shard and the policy indices of their legal moves. Raises ShardError.
    Those of row i are moves[start[i] : start[i + 1]]."""
    nothing = np.zeros((shard.positions + shard.branches, 1), np.uint16)
    columns, _ = played_through(shard, nothing, input_format)
    packed = PackedPositions(columns["boards"], columns["masks"], columns["repetitions"], columns["rule50"])
    return packed, columns["move_start"], columns["moves"]


def _held_out(shard: Shard, share: float) -> NDArray[np.bool_]:
    """Return the held-out games, bool [G], chosen by their moves, so that every run has the same ones."""
    ends = np.cumsum(shard.columns["plies"], dtype=np.int64)
    pieces = np.split(shard.columns["moves"], ends[:-1])
    hashes = [
        zlib.crc32(fen.encode() + moves.tobytes()) for fen, moves in zip(shard.fens(), pieces, strict=True)
    ]
    return np.array(hashes, np.uint64) < np.uint64(share * 2**32)


def asked_moves(shard: Shard) -> NDArray[np.uint16]:
    """Return the codes [rows, k] of moves to locate, 0 for none: the best, then lines."""
    columns = shard.columns
    if shard.kind == "labels":
        along = np.concatenate([columns["best"][:, None], columns["lines"].T], axis=1)
        beside = np.concatenate([columns["branch_best"][:, None], columns["branch_lines"].T], axis=1)
        if along.shape[1] > LISTED:
            raise ShardError(f"{along.shape[1]} lines, not up to {LISTED}: use `label --multipv {LISTED}`")
        return np.concatenate([along, beside])
    return columns["best"][:, None]


def _for_moves(shard: Shard, name: str, columns: Mapping[str, NDArray[Any]]) -> NDArray[np.uint8]:
    """Return a column with a byte for each legal move of the rows. Raises ShardError for another length."""
    found: NDArray[np.uint8] = shard.columns[name]
    if len(found) != len(columns["moves"]):
        raise ShardError(f"the column {name} does not fit the positions' legal moves")
    return found


def _shares(policy: NDArray[np.uint8], start: NDArray[np.int64]) -> NDArray[np.float16]:
    """Return the shares of `share_bytes`. Those of row i, policy[start[i] : start[i + 1]], add up to 1."""
    shares = np.where(policy == NO_SHARE, 0, np.exp(-policy.astype(np.float32) / NAT_STEPS))
    row = np.repeat(np.arange(len(start) - 1), np.diff(start))
    totals = np.bincount(row, shares, len(start) - 1)
    return (shares / np.maximum(totals, 1e-9)[row]).astype(np.float16)


def played_through(
    shard: Shard, asked: NDArray[np.uint16], input_format: int
) -> tuple[dict[str, NDArray[Any]], Rows]:
    """Replay all games, and return the columns common to all kinds of shards and the origin of the rows.

    Raises ShardError that names the game, for an illegal move or position.
    """
    if not shard.games:
        raise ShardError("there are no games in it")
    columns = shard.columns
    labels = shard.kind == "labels"
    at = columns["branch_at"] if labels else np.zeros(0, np.uint32)
    leaving = columns["branch_move"] if labels else np.zeros(0, np.uint16)
    games = columns["chess960"], columns["plies"], columns["prefix"], columns["moves"]
    try:
        positions, _, keys, offsets, policy, _, places, plies = encode_games(
            shard.fens(), *games, at, leaving, asked, input_format, "fen_only"
        )
    except ValueError as error:
        raise ShardError(str(error)) from None
    samples = columns["plies"].astype(np.int64) - columns["prefix"]
    game = np.repeat(np.arange(shard.games), samples)
    packed = pack_positions(positions.view(POSITION_DTYPE).reshape(-1))
    made: dict[str, NDArray[Any]] = {
        "boards": packed.boards,
        "masks": packed.masks,
        "repetitions": packed.repetitions,
        "rule50": packed.rule50,
        "move_start": offsets.astype(np.int64),
        "moves": policy,
        "shares": np.zeros(len(policy), np.float16),
        "keys": keys,
    }
    return made, Rows(np.concatenate([game, game[at]]), plies.astype(np.int64), places)


def _of_labels(
    shard: Shard, rows: Rows, branch: NDArray[np.bool_], target: TargetSettings
) -> dict[str, NDArray[Any]]:
    columns = shard.columns
    count = shard.positions
    cp = np.concatenate([columns["best_cp"], columns["branch_best_cp"]])
    lines_cp = np.concatenate([columns["lines_cp"], columns["branch_lines_cp"]], axis=1).T
    places, scores = targets.listed_scores(rows.places[:, 0], rows.places[:, 1:], lines_cp, target)
    missing = LISTED - places.shape[1]
    places = np.pad(places, ((0, 0), (0, missing)), constant_values=NO_PLACE)
    own = targets.label_wdl(cp, rows.ply, target)
    wdl, later = own.copy(), own.copy()
    game = rows.game[:count]
    if target.next_share:
        wdl[:count] = targets.mean_of_next(own[:count], game, target.next_share, own=True)
    later[:count] = targets.mean_of_next(own[:count], game, target.short_term_decay, own=False)
    black = rows.ply % 2 == 1
    results = targets.result_wdl(columns["results"][game], black[:count])
    wdl[:count] = targets.mixed(wdl[:count], results, target.result_share)
    return {
        "listed": places,
        "listed_score": np.pad(scores, ((0, 0), (0, missing))).astype(np.float32),
        "best": np.where(rows.places[:, 0] == NO_PLACE, rows.places[:, 1], rows.places[:, 0]),
        "wdl": wdl,
        "next_wdl": later,
        "plies_left": _plies_left(shard, branch, game),
        "score": cp.astype(np.float32),
    }


def _plies_left(shard: Shard, branch: NDArray[np.bool_], game: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the plies to the end for samples along the game, NaN for branches and games without an end."""
    samples = shard.columns["plies"].astype(np.int64) - shard.columns["prefix"]
    left = np.full(len(branch), np.nan, np.float32)
    ends = np.cumsum(samples)
    left[: len(game)] = ends[game] - np.arange(len(game))
    left[: len(game)][shard.columns["results"][game] == UNDECIDED] = np.nan
    return left


def _of_search(
    shard: Shard, rows: Rows, searched: NDArray[np.float32], target: TargetSettings
) -> dict[str, NDArray[Any]]:
    """searched: [n, 3] WDL of the searches."""
    columns = shard.columns
    result = wdl_of(columns["result"])
    result = np.where((rows.ply % 2 == 1)[:, None], result[:, ::-1], result)
    plies_left = columns["plies_left"].astype(np.float32)
    plies_left[columns["plies_left"] == UNKNOWN_PLIES] = np.nan
    count = len(rows.game)
    return {
        "listed": np.full((count, LISTED), NO_PLACE, np.uint8),
        "listed_score": np.zeros((count, LISTED), np.float32),
        "best": rows.places[:, 0],
        "wdl": targets.mixed(searched, result, target.result_share),
        "next_wdl": targets.mean_of_next(searched, rows.game, target.short_term_decay, own=False),
        "plies_left": plies_left,
        "score": np.zeros(count, np.float32),
    }
