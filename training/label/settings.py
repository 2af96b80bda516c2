# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of labelling. configs/label.toml shows every key."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, dataclass, replace
from typing import Any

from engine.workers import MAX_WORKERS
from protocol.common.settings.spec import (
    UNREACHED,
    SettingsError,
    SettingsGroup,
    setting,
    settings_of,
)

WARM_SHARE = 3 / 8
"""Default nodes of the search for several lines, relative to the first search."""


def _command(text: str) -> object:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise SettingsError(f"{text!r} is no command line: {error}") from None
    if not words:
        raise SettingsError("it names no program")
    return words


@dataclass(frozen=True, slots=True)
class LabelSettings(SettingsGroup):
    """Settings of labelled games. Scores are centipawns, expected scores 1 / (1 + exp(-cp / 100))."""

    engine: str = setting(
        "stockfish", "command line of the UCI engine that plays and labels", section="labels", reader=_command
    )
    engine_option: tuple[str, ...] = setting(
        (), "an option of the engine as Name=Value; presets are Threads=1 and Hash=16", low=1
    )
    nodes: int = setting(4000, "nodes of the search for the best move and its score", low=1, high=UNREACHED)
    multipv: int = setting(4, "number of lines of a second search on the same hash", low=1, high=5)
    multipv_nodes: int = setting(0, "nodes of the second search; 0: three eighths of nodes", high=UNREACHED)
    play_nodes: int = setting(
        0,
        "nodes of the searches that choose the moves, if one position of each game is drawn at random, "
        "labelled with an empty hash and kept; 0: label and keep all positions",
        high=UNREACHED,
    )
    tablebases: tuple[str, ...] = setting(
        (), "folder of Syzygy tables; positions in them get exact labels and the best moves", low=1
    )
    patience_s: float = setting(
        60.0, "seconds without an answer after which an engine is restarted", low=0.1, high=1e6
    )
    openings: str = setting(
        "", "opening book: EPD, PGN or Polyglot; empty: the included one", section="starts"
    )
    book_share: float = setting(0.4, "share of the games that start from the book", high=1)
    endgame_share: float = setting(
        0.1, "share of the games that start with few men, placed at random", high=1
    )
    endgame_men: int = setting(8, "maximum number of men of these starts", low=3, high=32)
    random_plies: int = setting(
        10, "maximum number of random plies at the start of the other games", high=100
    )
    start_cp: int = setting(
        400,
        "maximum score after random plies, in centipawns; beyond it the start is drawn again",
        low=1,
        high=32_000,
    )
    temperature: float = setting(
        0.03,
        "temperature of the choice of moves, in expected score; two thirds of it after 16 plies, one "
        "third after 40",
        section="moves",
        low=0.001,
        high=10,
    )
    best_share: float = setting(0.3, "share of moves that are always the best one", high=1)
    blunder_share: float = setting(0.02, "share of moves that are any legal move", high=1)
    max_plies: int = setting(
        280, "maximum length of a game in plies; longer games are drawn", low=1, high=2000
    )
    won_cp: int = setting(1200, "score in centipawns that wins a game after 6 plies", low=100, high=32_000)
    played_on: float = setting(0.12, "share of the games that continue after that", high=1)
    branches: float = setting(
        0.55,
        "share of positions at which another move is also made and labelled",
        section="branches",
        high=1,
    )
    branch_lines: float = setting(
        0.5, "share of these moves that are taken from the lines after the first", high=1
    )
    branch_policy: float = setting(
        0.3, "share of these moves that are drawn from the policy of branch_network", high=1
    )
    branch_network: str = setting(
        "",
        "network for these moves: a file, wavefront-cpu or wavefront-gpu; empty: any legal move instead",
    )
    branch_temperature: float = setting(1.4, "temperature of that network's policy", low=0.01, high=100)
    positions: int = setting(
        1_000_000,
        "number of positions wanted in the folder, branches included",
        section="run",
        low=1,
        high=10**12,
    )
    games: int = setting(
        0, "number of games wanted in the folder, instead of positions; 0: as positions require", high=10**9
    )
    workers: int = setting(0, "number of engines; 0: one per core", high=MAX_WORKERS, zero="auto")
    time_limit_s: float = setting(0.0, "seconds after which labelling ends; 0: no limit", high=1e9)
    seed: int = setting(1, "random seed", high=2**31)

    @property
    def command(self) -> list[str]:
        return shlex.split(self.engine)

    @property
    def line_nodes(self) -> int:
        """Nodes of the search for several lines."""
        return self.multipv_nodes or max(1, round(WARM_SHARE * self.nodes))

    @property
    def playing(self) -> LabelSettings:
        """Settings of the searches that choose the moves, if `play_nodes` is set."""
        return replace(self, nodes=self.play_nodes, multipv_nodes=0)

    def engine_options(self) -> dict[str, str]:
        """Return the engine's options by name, as given. Raises SettingsError."""
        options = {}
        for text in self.engine_option:
            name, equals, value = text.partition("=")
            if not equals or not name.strip():
                raise SettingsError(f"--engine-option {text!r}: an option is written Name=Value")
            options[name.strip()] = value.strip()
        return options

    def identity(self) -> dict[str, Any]:
        """Return all settings that games depend on, as JSON data. A folder holds games of one identity."""
        left_out = {"positions", "games", "workers", "time_limit_s", "patience_s"}
        # Older folders do not have these.
        for name in ("play_nodes", "tablebases", "endgame_men"):
            if getattr(self, name) == settings_of(LabelSettings)[name].default:
                left_out.add(name)
        data: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return {name: value for name, value in data.items() if name not in left_out}
