# SPDX-License-Identifier: GPL-3.0-or-later
"""Manifests: small TOML files that represent a folder of labelled games, which `label` can make again.

A manifest has the settings that differ from the defaults, in the tables of configs/label.toml, and a table
`made`: the engine's name for itself, counts, and a digest of all games. The digest does not depend on the
order of the games, their shards, or the number of engines.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from engine.apps.games import differences
from engine.apps.shards import Shard, ShardError, read_shard
from protocol.common.printing import failing_as
from protocol.common.settings.sources import read_document, read_toml
from protocol.common.settings.spec import SettingsError
from training.data.reading import shards_of
from training.data.table import LISTED
from training.errors import TrainingError
from training.label.settings import LabelSettings

TABLE = "made"


@dataclass(frozen=True, slots=True)
class MadeGames:
    """What a run made. engine: its name for itself. positions: along the games. digest: of `digest_of`."""

    engine: str
    games: int
    positions: int
    branches: int
    digest: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest file. made: None before the first run."""

    path: Path
    settings: LabelSettings
    made: MadeGames | None


def read_manifest(path: Path) -> Manifest:
    """Read a manifest. Raises SettingsError, also for settings that are not repeatable."""
    settings = read_toml(path, LabelSettings(), apart=(TABLE,))
    if not settings.games:
        raise SettingsError(f"{path}: a manifest needs `games`, the number of games")
    if settings.branch_network:
        raise SettingsError(f"{path}: branch_network is not repeatable: its policy depends on the backend")
    table = read_document(path).get(TABLE)
    if table is None:
        return Manifest(path, settings, None)
    kinds = {"engine": str, "games": int, "positions": int, "branches": int, "digest": str}
    if not isinstance(table, dict) or {name: type(value) for name, value in table.items()} != kinds:
        raise SettingsError(f"{path}: the table {TABLE} needs engine, games, positions, branches and digest")
    return Manifest(path, settings, MadeGames(**table))


def check_settings(manifest: Manifest, settings: LabelSettings) -> None:
    """Raise SettingsError if flags changed what the games depend on. The paths of the engine and
    of tablebases may differ."""
    paths = {"engine": settings.engine, "tablebases": settings.tablebases}
    wanted, given = manifest.settings.changed(**paths).identity(), settings.identity()
    changed = differences(wanted | {"games": manifest.settings.games}, given | {"games": settings.games})
    if changed:
        raise SettingsError(f"the manifest {manifest.path} has other settings: {'; '.join(changed)}")


def made_in(folder: Path, engine: str) -> MadeGames:
    """Return what a folder of shards holds. engine: that made it. Raises TrainingError."""
    shards = []
    for path in shards_of([folder]):
        with failing_as(TrainingError, str(path), ShardError):
            shards.append(read_shard(path))
    return MadeGames(
        engine,
        sum(shard.games for shard in shards),
        sum(shard.positions for shard in shards),
        sum(shard.branches for shard in shards),
        digest_of(shards),
    )


def check_made(manifest: Manifest, folder: Path) -> MadeGames:
    """Return what a finished folder holds. Raises TrainingError if the manifest says something else."""
    assert manifest.made is not None
    made = made_in(folder, manifest.made.engine)
    changed = [
        f"{entry.name} is {getattr(made, entry.name)}, not {getattr(manifest.made, entry.name)}"
        for entry in fields(made)
        if getattr(made, entry.name) != getattr(manifest.made, entry.name)
    ]
    if changed:
        raise TrainingError(f"{folder} differs from {manifest.path}: {'; '.join(changed)}")
    return made


def write_made(manifest: Manifest, made: MadeGames) -> None:
    """Append the table to the manifest. Raises TrainingError."""
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in asdict(made).items()]
    with (
        failing_as(TrainingError, f"cannot write {manifest.path}"),
        manifest.path.open("a", encoding="utf-8") as file,
    ):
        file.write("\n".join(["", f"[{TABLE}]", *lines, ""]))


def digest_of(shards: Iterable[Shard]) -> str:
    """Return SHA-256 over the sorted SHA-256s of the games in shards of labels."""
    games = sorted(digest for shard in shards for digest in _games(shard))
    return f"sha256 {hashlib.sha256(b''.join(games)).hexdigest()}"


def _games(shard: Shard) -> Iterator[bytes]:
    """Yield the SHA-256 of each game: start, moves, result, labels and branches."""
    columns = shard.columns
    plies, prefix = columns["plies"].astype(np.int64), columns["prefix"].astype(np.int64)
    moves = np.concatenate([[0], np.cumsum(plies)])
    samples = np.concatenate([[0], np.cumsum(plies - prefix)])
    branches = np.searchsorted(columns["branch_at"], samples)
    along = _rows(shard, "")
    beside = _rows(shard, "branch_")
    left_at = columns["branch_at"].astype(np.int64)[:, None]
    beside = np.concatenate([left_at, columns["branch_move"][:, None], beside], axis=1)
    for game, fen in enumerate(shard.fens()):
        own = beside[branches[game] : branches[game + 1]].copy()
        own[:, 0] -= samples[game]
        numbers = (plies[game], prefix[game], columns["results"][game], columns["chess960"][game], len(own))
        parts = (
            np.array(numbers),
            columns["moves"][moves[game] : moves[game + 1]],
            along[samples[game] : samples[game + 1]],
            own,
        )
        yield hashlib.sha256(
            fen.encode() + b"\n" + b"".join(part.astype("<i8").tobytes() for part in parts)
        ).digest()


def _rows(shard: Shard, prefix: str) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Return best move, score, and lines with their scores, [n, 2 LISTED]. Missing lines are 0."""
    columns = shard.columns
    best = np.stack([columns[f"{prefix}best"], columns[f"{prefix}best_cp"]], axis=1).astype(np.int64)
    listed = [columns[f"{prefix}{name}"].T.astype(np.int64) for name in ("lines", "lines_cp")]
    wide = [np.pad(column, ((0, 0), (0, LISTED - 1 - column.shape[1]))) for column in listed]
    return np.concatenate([best, *wide], axis=1)
