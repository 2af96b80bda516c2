# SPDX-License-Identifier: GPL-3.0-or-later
"""What is to be played, as plain data. `configfile` makes it from TOML and from flags."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

from engine.games.identity import file_identity, options_identity
from engine.games.openings import OpeningSettings
from engine.match.adjudication import Adjudication
from engine.match.results.sprt import Sprt
from engine.match.schedule import Format, Schedule
from engine.match.timecontrol import TimeControl
from engine.options import Options
from engine.workers import MAX_WORKERS
from protocol.settings.spec import UNREACHED, setting

UciValue = str | int | bool | None


@dataclass(frozen=True, slots=True)
class PlayerConfig:
    """One player: this engine with some options, or any UCI engine as a program.

    command: the program and its arguments; empty for this engine. options are this engine's, uci_options the
    program's, directory where it is started ("" is here). ponder: let the program think on its opponent's
    time.
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
    """Where results go. plot: None draws none; the others always have a name."""

    journal: Path
    pgn: Path
    summary: Path
    plot: Path | None = None


@dataclass(frozen=True, slots=True)
class MatchConfig:
    """A match.

    games: of each pairing. pairs: each opening is played twice, colours reversed. concurrency: games at
    once, 0 is what the evaluator's curve and the processor suggest. workers: processes of this machine that
    play them, 0 is as many as the evaluator's curve asks for. time_margin_ms: overdrawn time that is
    forgiven. stall_seconds: how long a player without a limit of time may think about a move. output: base
    name of the files, also with .pgn; "" and the end of a folder's name make one from the match itself.
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
        """Raises ValueError if the numbers do not fit together."""
        return Schedule(len(self.players), self.format, self.games, self.pairs)

    @property
    def files(self) -> OutputFiles:
        base = self.output.removesuffix(".pgn")
        if not base or base.endswith(("/", os.sep)):  # In a folder.
            base += f"match-{self.fingerprint}"
        return OutputFiles(
            journal=Path(base + ".jsonl"),
            pgn=Path(base + ".pgn"),
            summary=Path(base + ".json"),
            plot=Path(self.plot) if self.plot else None,
        )

    def identity(self) -> dict[str, Any]:
        """All that results depend on, as JSON data: games of matches that differ here must not be mixed.

        The number of games is no part of it, so that a match can be made longer; networks, books and programs
        count by content.
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
        """With the files' names as they are now: a network or a program may be made anew during the match."""
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
    # Where the evaluator runs does not matter; threads and backends do, to a player with a clock.
    apart = {"evaluator", "evaluator_keys", "evaluator_compression", "log_file"}
    return identity | {"options": options_identity(player.options, apart=apart)}


def _program_identity(player: PlayerConfig) -> str:
    """A program that was built anew is another player."""
    name = player.command[0]
    in_path = Path(name).name == name
    return file_identity(shutil.which(name) or name if in_path else str(Path(player.directory, name)))
