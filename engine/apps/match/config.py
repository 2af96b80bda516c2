# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration of a match as plain data. `configfile` creates it from TOML and from flags."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

from engine.apps.games.identity import file_identity, options_identity
from engine.apps.games.openings import OpeningSettings
from engine.apps.match.adjudication import Adjudication
from engine.apps.match.results.sprt import Sprt
from engine.apps.match.schedule import Format, Schedule
from engine.apps.match.timecontrol import TimeControl
from engine.options import Options
from engine.workers import MAX_WORKERS
from protocol.common.settings.spec import UNREACHED, setting

UciValue = str | int | bool | None


@dataclass(frozen=True, slots=True)
class PlayerConfig:
    """One player: this engine with options, or a UCI engine as a program.

    command: the program and its arguments; empty for this engine. options: this engine's. uci_options: the
    program's. directory: working directory of the program; "" is the current one. ponder: let the program
    think on its opponent's time.
    """

    name: str
    time: TimeControl = field(default_factory=TimeControl)
    options: Options = field(default_factory=Options)
    command: tuple[str, ...] = ()
    uci_options: Mapping[str, UciValue] = field(default_factory=dict)
    directory: str = ""
    ponder: bool = False

    @property
    def is_program(self) -> bool:
        return bool(self.command)


@dataclass(frozen=True, slots=True)
class OutputFiles:
    """The output files. plot: may be None; the others are always written."""

    journal: Path
    pgn: Path
    summary: Path
    plot: Path | None = None


@dataclass(frozen=True, slots=True)
class MatchConfig:
    """A match.

    games: per pairing. pairs: play each opening twice with reversed colours. concurrency: concurrent games; 0
    chooses by the evaluator's curve and the CPU. workers: processes of this machine that play; 0 chooses by
    the evaluator's curve. time_margin_ms: tolerated excess of the time limit. stall_seconds: maximum thinking
    time of a player without a time limit. output: base name of the files, also with .pgn; if it is "" or ends
    with a folder separator, the name comes from the match.
    """

    players: tuple[PlayerConfig, ...]
    event: str = setting("Wavefront match")
    format: Format = setting("round-robin", choices=get_args(Format))
    games: int = setting(100, low=1, high=UNREACHED)
    pairs: bool = setting(True)
    seed: int = setting(1, high=2**63)
    chess960: bool = setting(False)
    concurrency: int = setting(0, high=4096)
    workers: int = setting(0, high=MAX_WORKERS, zero="auto")
    time_margin_ms: int = setting(100, high=10**6)
    stall_seconds: float = setting(120.0, low=0.1, high=1e6)
    openings: OpeningSettings = field(default_factory=OpeningSettings)
    adjudication: Adjudication = field(default_factory=Adjudication)
    sprt: Sprt | None = None
    output: str = setting("")
    plot: str = setting("")

    @property
    def schedule(self) -> Schedule:
        """The schedule. Raises ValueError for inconsistent numbers."""
        return Schedule(len(self.players), self.format, self.games, self.pairs)

    @property
    def files(self) -> OutputFiles:
        base = self.output.removesuffix(".pgn")
        if not base or base.endswith(("/", os.sep)):  # a folder
            base += f"match-{self.fingerprint}"
        return OutputFiles(
            journal=Path(base + ".jsonl"),
            pgn=Path(base + ".pgn"),
            summary=Path(base + ".json"),
            plot=Path(self.plot) if self.plot else None,
        )

    def identity(self) -> dict[str, Any]:
        """Return all dependencies of the results as JSON data. Games with different ones must not be mixed.

        The number of games is excluded, so that a match can be extended. Networks, books and programs are
        identified by their content.
        """
        identity = {
            name: value
            for name, value in asdict(self).items()
            if name not in ("event", "games", "concurrency", "workers", "stall_seconds", "output", "plot")
        }
        identity["openings"] = self.openings.identity()
        identity["players"] = [_player_identity(player) for player in self.players]
        data: dict[str, Any] = json.loads(json.dumps(identity, sort_keys=True))
        return data

    def with_output_named(self) -> MatchConfig:
        """Return the match with fixed file names, as networks and programs may change during the match."""
        return replace(self, output=str(self.files.pgn).removesuffix(".pgn"))

    @property
    def fingerprint(self) -> str:
        """Eight hex digits of the identity."""
        return hashlib.sha256(json.dumps(self.identity(), sort_keys=True).encode()).hexdigest()[:8]


def _player_identity(player: PlayerConfig) -> dict[str, Any]:
    identity: dict[str, Any] = {"name": player.name, "time": str(player.time)}
    if player.is_program:
        program: dict[str, Any] = {"program": _program_identity(player), "command": player.command}
        if player.ponder:
            program["ponder"] = True
        return identity | program | {"options": dict(player.uci_options)}
    # The place of the evaluator does not matter. Threads and backends do, if the player has a clock.
    apart = {"evaluator", "evaluator_keys", "evaluator_compression", "log_file"}
    return identity | {"options": options_identity(player.options, apart=apart)}


def _program_identity(player: PlayerConfig) -> str:
    """Return the content hash of a program: after a rebuild it is another player."""
    name = player.command[0]
    in_path = Path(name).name == name
    return file_identity(shutil.which(name) or name if in_path else str(Path(player.directory, name)))
