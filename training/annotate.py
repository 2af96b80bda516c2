# SPDX-License-Identifier: GPL-3.0-or-later
"""Adds a network's policy and WDL, from the evaluator or from searches, to shards.

Each shard is rewritten once it is complete, so a killed run loses at most the work on unfinished shards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from engine.apps.campaign import Campaign, QuietView
from engine.apps.shards import Shard, ShardError, read_header, read_shard, write_shard
from engine.options import Options
from protocol.common.printing import failing_as, reason
from training.data.annotations import annotated, identity, prior_identity
from training.data.reading import encoded_positions
from training.errors import TrainingError
from training.evaluation import EncodedRows, Evaluation
from training.searches import SearchedGame, SearchJob

WRITERS = 4
"""Shards written at once after searches: compression takes 30 µs a position, and no interpreter lock."""

ROWS_AT_ONCE = 64
"""Rows of a run of games that a process searches and sends at once: with one row each, as `harvest` makes
them, one process would hand out and collect 1,400 games a second."""

_counting = Lock()


@dataclass(slots=True)
class Annotated:
    """Summary of a run. network: its SHA-256. passed_over: shards that already had its annotations.
    broken: file -> error."""

    network: str = ""
    shards: int = 0
    positions: int = 0
    passed_over: int = 0
    broken: dict[str, str] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"{self.shards} shards, {self.positions:,} positions annotated; {self.passed_over} were already, "
            f"{len(self.broken)} are broken"
        )


def annotate(
    paths: Sequence[Path],
    options: Options,
    note: Callable[[str], None],
    step: Callable[[int], None] = lambda count: None,
) -> Annotated:
    """Annotate shards with the network of the options.

    note: receives messages, among them each broken shard, which stays unchanged. step: called with the number
    of newly evaluated positions. Raises TrainingError.
    """
    done = Annotated()
    with Evaluation(options, note) as evaluation, ThreadPoolExecutor(1) as reader:
        network = evaluation.network
        done.network = network.content_hash
        if not network.content_hash:
            raise TrainingError("this backend evaluates no network: positions cannot be annotated with it")
        wanted = _unannotated(paths, network.content_hash, done)
        # Replay the next shard while the evaluator works on this one.
        coming = [reader.submit(_encoded, path, network.input_format) for path in wanted[:1]]
        for number, path in enumerate(wanted, 1):
            ready = coming.pop().result()
            coming += [
                reader.submit(_encoded, each, network.input_format) for each in wanted[number : number + 1]
            ]
            if isinstance(ready, Exception):
                done.broken[str(path)] = reason(ready)
                note(f"{path}: {reason(ready)}; left as it is")
                continue
            shard, rows = ready
            logits, wdl = evaluation.evaluate(rows, step)
            _write(path, annotated(shard, network.content_hash, logits, wdl, rows.start), done)
            note(f"{path}: {len(rows):,} positions ({number} of {len(wanted)} shards)")
    return done


def annotate_by_searches(
    paths: Sequence[Path],
    options: Options,
    nodes: int,
    workers: int,
    note: Callable[[str], None],
    step: Callable[[int], None] = lambda count: None,
) -> Annotated:
    """Annotate shards with searches of `nodes` visits: their policy, and WDL of the best moves.

    workers: number of processes; 0: as many as the evaluator requires. note, step: as for `annotate`.
    Raises TrainingError, and KeyboardInterrupt if it was interrupted.
    """
    done = Annotated()
    if options.evaluator:
        with Evaluation(options, note) as evaluation:
            done.network = evaluation.network.content_hash
    else:
        done.network = prior_identity(options.weights)
    if not done.network:
        raise TrainingError("this backend evaluates no network: positions cannot be annotated with it")
    missing = _unannotated(paths, identity(done.network, nodes), done)
    campaign = _Annotation(missing, options, nodes, workers, done, note, step)
    if asyncio.run(campaign.run(QuietView(note))) == "interrupted":
        raise KeyboardInterrupt
    return done


class _Annotation(Campaign[SearchedGame, SearchedGame]):
    """Collects searched games, and writes a shard when all of its games are there.

    Threads of its own write shards: a large one takes seconds, in which the next games must start.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        options: Options,
        nodes: int,
        workers: int,
        done: Annotated,
        note: Callable[[str], None],
        step: Callable[[int], None],
    ) -> None:
        self._nodes, self._done, self._note, self._step = nodes, done, note, step
        self._missing: dict[str, int] = {}
        self._searched: dict[str, list[SearchedGame]] = {}
        self._finisher = ThreadPoolExecutor(WRITERS, "shard-writer")
        self._finishing: list[Future[None]] = []
        positions = 0
        games = []
        for path in paths:
            try:
                header = read_header(path)
            except Exception as error:  # The other shards go on, whatever it is.
                self._break(str(path), reason(error))
                continue
            count, rows = int(header["games"]), int(header["positions"]) + int(header["branches"])
            positions += rows
            run = max(1, ROWS_AT_ONCE * count // max(1, rows))
            runs = [(str(path), first, min(count, first + run)) for first in range(0, count, run)]
            self._missing[str(path)], self._searched[str(path)] = len(runs), []
            games += runs
        self._games = tuple(games)
        super().__init__(range(len(games)), workers=workers)
        self.job = SearchJob(self._games, positions, options, nodes)

    def write(self, game: SearchedGame) -> SearchedGame:
        path = self._games[game.number][0]
        self._missing[path] -= 1
        self._searched[path].append(game)
        if not self._missing[path]:
            self._finishing.append(self._finisher.submit(self._finish, path, self._searched.pop(path)))
        while self._finishing and self._finishing[0].done():
            self._finishing.pop(0).result()
        return game

    def count(self, entry: SearchedGame) -> None:
        self._step(len(entry.rows))

    def close(self) -> None:
        """Wait for the shards that are being written. Raises TrainingError if one could not be."""
        self._finisher.shutdown()
        for shard in self._finishing:
            shard.result()

    def _finish(self, path: str, games: Sequence[SearchedGame]) -> None:
        failures = [game.failure for game in games if game.failure]
        if failures:
            self._break(path, failures[0])
            return
        if any(not game.network.startswith(self._done.network) for game in games if len(game.rows)):
            raise TrainingError(f"{path}: another network than {self._done.network[:8]} searched it")
        rows = np.concatenate([game.rows for game in games])
        counts = np.concatenate([game.counts for game in games])
        order = np.argsort(rows)
        pieces = np.split(np.concatenate([game.logits for game in games]), np.cumsum(counts)[:-1])
        _write(
            Path(path),
            annotated(
                read_shard(Path(path)),
                identity(self._done.network, self._nodes),
                np.concatenate([pieces[row] for row in order]),
                np.concatenate([game.wdl for game in games])[order],
                np.concatenate([[0], np.cumsum(counts[order])]),
            ),
            self._done,
        )
        self._note(f"{path}: {len(rows):,} positions ({self._done.shards} of {len(self._missing)} shards)")

    def _break(self, path: str, reason: str) -> None:
        self._done.broken[path] = reason
        self._note(f"{path}: {reason}; left as it is")


def _unannotated(paths: Sequence[Path], annotations: str, done: Annotated) -> list[Path]:
    """Return the shards that do not have these annotations, and count the others."""

    def there(path: Path) -> bool:
        try:
            return bool(read_header(path).get("annotated_by") == annotations)
        except Exception:
            return False  # reading the shard reports the error

    wanted = [path for path in paths if not there(path)]
    done.passed_over = len(paths) - len(wanted)
    return wanted


def _write(path: Path, shard: Shard, done: Annotated) -> None:
    """Write an annotated shard, and count it. Raises TrainingError."""
    with failing_as(TrainingError, f"cannot write {path}, which is left as it is", ShardError):
        write_shard(path, shard)
    with _counting:
        done.shards += 1
        done.positions += shard.positions + shard.branches


def _encoded(path: Path, input_format: int) -> tuple[Shard, EncodedRows] | Exception:
    """Return a shard with its encoded positions, or the error."""
    try:
        shard = read_shard(path)
        return shard, EncodedRows(*encoded_positions(shard, input_format))
    except Exception as error:  # The other shards go on, whatever it is.
        return error
