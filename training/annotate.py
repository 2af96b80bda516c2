# SPDX-License-Identifier: GPL-3.0-or-later
"""Adds a network's policy and WDL, from the evaluator, to shards.

Each shard is rewritten once it is complete, so a killed run loses at most one shard's work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from engine.options import Options
from engine.selfplay.shard import Shard, ShardError, read_header, read_shard, write_shard
from training.data.annotations import annotated
from training.data.reading import encoded_positions
from training.errors import TrainingError
from training.evaluation import EncodedRows, Evaluation


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
        wanted = [path for path in paths if not _annotated_by(path, network.content_hash)]
        done.passed_over = len(paths) - len(wanted)
        # Replay the next shard while the evaluator works on this one.
        coming = [reader.submit(_encoded, path, network.input_format) for path in wanted[:1]]
        for number, path in enumerate(wanted, 1):
            ready = coming.pop().result()
            coming += [
                reader.submit(_encoded, each, network.input_format) for each in wanted[number : number + 1]
            ]
            if isinstance(ready, Exception):
                done.broken[str(path)] = str(ready)
                note(f"{path}: {ready}; left as it is")
                continue
            shard, rows = ready
            logits, wdl = evaluation.evaluate(rows, step)
            try:
                write_shard(path, annotated(shard, network.content_hash, logits, wdl, rows.start))
            except ShardError as error:
                raise TrainingError(f"{path}: {error}; the shard is left as it is") from None
            except OSError as error:
                raise TrainingError(f"cannot write {path}: {error.strerror}") from None
            done.shards += 1
            done.positions += len(rows)
            note(f"{path}: {len(rows):,} positions ({number} of {len(wanted)} shards)")
    return done


def _annotated_by(path: Path, network: str) -> bool:
    try:
        return bool(read_header(path).get("annotated_by") == network)
    except (ShardError, OSError):
        return False  # reading the shard reports the error


def _encoded(path: Path, input_format: int) -> tuple[Shard, EncodedRows] | Exception:
    """Return a shard with its encoded positions, or the error."""
    try:
        shard = read_shard(path)
        return shard, EncodedRows(*encoded_positions(shard, input_format))
    except (ShardError, OSError) as error:
        return error
