"""What is labelled, and how. configs/label.toml shows every key."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, dataclass
from typing import Any

from engine.workers import MAX_WORKERS
from protocol.settings.sources import toml_text
from protocol.settings.spec import UNREACHED, Setting, SettingsError, SettingsGroup, setting, settings_of

SHIPPED = "shipped"
"""The name of the network that comes with the program."""

WARM_SHARE = 3 / 8
"""Nodes of the search for several lines, in those of the search before it, where no number is given."""


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
    """Labelled games. Scores are in centipawns, expected scores 1 / (1 + exp(-cp / 100))."""

    engine: str = setting(
        "stockfish", "command line of the UCI engine that plays and labels", section="labels", reader=_command
    )
    engine_option: tuple[str, ...] = setting(
        (), "an option of the engine as Name=Value; Threads=1 and Hash=16 are given anyway", low=1
    )
    nodes: int = setting(4000, "nodes of the search for the best move and its score", low=1, high=UNREACHED)
    multipv: int = setting(
        4, "lines of a second search, on what the first has left in the hash", low=1, high=5
    )
    multipv_nodes: int = setting(0, "its nodes; 0 is three eighths of the first one's", high=UNREACHED)
    patience_s: float = setting(
        60.0, "seconds without an answer after which an engine is ended and started anew", low=0.1, high=1e6
    )
    openings: str = setting(
        "", "book of openings: EPD, PGN or Polyglot; empty is the shipped one", section="starts"
    )
    book_share: float = setting(0.4, "share of the games that begin in the book", high=1)
    endgame_share: float = setting(0.1, "share that begins with up to 8 men, placed at random", high=1)
    random_plies: int = setting(10, "the rest begins after 0 to so many random plies", high=100)
    start_cp: int = setting(
        400, "a start after random plies is drawn again where the score is beyond that", low=1, high=32_000
    )
    temperature: float = setting(
        0.03,
        "of moves, in expected score; two thirds of it after 16 plies, one third after 40",
        section="moves",
        low=0.001,
        high=10,
    )
    best_share: float = setting(0.3, "share of moves that are the best one anyway", high=1)
    blunder_share: float = setting(0.02, "share of moves that are any legal one", high=1)
    max_plies: int = setting(280, "a longer game is drawn", low=1, high=2000)
    won_cp: int = setting(1200, "a game is won after 6 plies beyond that", low=100, high=32_000)
    played_on: float = setting(0.12, "share of the games that are played on all the same", high=1)
    branches: float = setting(
        0.55,
        "share of positions beside whose move another one is made, and labelled",
        section="branches",
        high=1,
    )
    branch_lines: float = setting(0.5, "share of these moves taken from the lines after the first", high=1)
    branch_policy: float = setting(0.3, "share drawn from a network's policy, where there is one", high=1)
    branch_network: str = setting(
        "",
        "that network: a file, wavefront-cpu or wavefront-gpu; empty is none, and any legal move instead",
    )
    branch_temperature: float = setting(1.4, "temperature of its policy", low=0.01, high=100)
    positions: int = setting(
        1_000_000, "positions wanted in the folder, branches included", section="run", low=1, high=10**12
    )
    workers: int = setting(0, "engines at once; 0 is one a core", high=MAX_WORKERS, zero="auto")
    time_limit_s: float = setting(0.0, "seconds after which no more is labelled; 0 is none", high=1e9)
    seed: int = setting(1, "of all random choices", high=2**31)

    @property
    def command(self) -> list[str]:
        return shlex.split(self.engine)

    @property
    def line_nodes(self) -> int:
        """Nodes of the search for several lines."""
        return self.multipv_nodes or max(1, round(WARM_SHARE * self.nodes))

    def engine_options(self) -> dict[str, str]:
        """The engine's options as they were given, by name. Raises SettingsError."""
        options = {}
        for text in self.engine_option:
            name, equals, value = text.partition("=")
            if not equals or not name.strip():
                raise SettingsError(f"--engine-option {text!r}: an option is written Name=Value")
            options[name.strip()] = value.strip()
        return options

    def identity(self) -> dict[str, Any]:
        """All that the games depend on, as JSON data: games that differ here are not mixed in one folder."""
        left_out = ("positions", "workers", "time_limit_s", "patience_s")
        data: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return {name: value for name, value in data.items() if name not in left_out}


def default_toml() -> str:
    """configs/label.toml."""

    def comment(declared: Setting) -> list[str]:
        return [declared.help]

    heading = [
        "Games played and labelled by a UCI engine. Use it with",
        "`python -m training label --config FILE --output FOLDER`; flags win over it.",
    ]
    return toml_text(settings_of(LabelSettings).values(), heading, comment)
