# SPDX-License-Identifier: GPL-3.0-or-later
"""The players of the ladder: Stockfish by label and by nodes, Maia, the included networks, and any others."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.apps.match.config import PlayerConfig
from engine.apps.match.configfile import DEFAULT_TIME, player_config
from engine.apps.match.players.names import named
from engine.apps.match.timecontrol import TimeControl
from engine.commands.match import player_table
from engine.options import Options
from engine.options.tables import Table
from engine.search.strength.levels import calibrated, with_network

STOCKFISH_NODES = {1_000: 2200.0, 10_000: 2700.0, 100_000: 3000.0, 1_000_000: 3200.0}
NETWORK_NODES = {1: 2000.0, 100: 2400.0, 400: 2600.0, 800: 2700.0, 3200: 2850.0}
"""Guessed Elo by nodes. Wrong guesses only make the first games less useful."""

UNKNOWN_ELO = 2300.0
"""Guess for players about which nothing is known."""

MAIA_EXCESS = 200.0
"""Guessed Elo of a Maia network over the rating in its name."""

MOVES = 50
"""Guessed moves of a player in a game."""

PROGRAM_NODES_PER_SECOND = 800_000
NETWORK_NODES_PER_SECOND = 20_000
"""Guesses for the time of games, until games have measured it."""


@dataclass(frozen=True, slots=True)
class LadderPlayer:
    """One player. guess: Elo before any game. label: of an anchor, else None. seconds: guess for a game."""

    config: PlayerConfig
    guess: float
    label: float | None = None

    @property
    def seconds(self) -> float:
        """Guessed time of its moves in a game."""
        time = self.config.time
        if time.movetime_ms is not None:
            return MOVES * time.movetime_ms / 1000
        rate = PROGRAM_NODES_PER_SECOND if self.config.is_program else NETWORK_NODES_PER_SECOND
        return MOVES * (time.nodes or rate / 10) / rate


def labelled_stockfish(path: str, labels: Sequence[int], movetime_ms: int) -> list[LadderPlayer]:
    """Return Stockfish with limited strength: the anchors.

    They play with a time per move, because their labels were not calibrated at fixed nodes.
    """
    return [
        LadderPlayer(
            PlayerConfig(
                f"stockfish UCI_Elo {label}",
                TimeControl(movetime_ms=movetime_ms),
                command=(path,),
                uci_options={"Threads": 1, "Hash": 16, "UCI_LimitStrength": True, "UCI_Elo": label},
            ),
            guess=label,
            label=label,
        )
        for label in labels
    ]


def stockfish_by_nodes(path: str, nodes: Sequence[int]) -> list[LadderPlayer]:
    """Return Stockfish at full strength with fixed nodes per move."""
    return [
        LadderPlayer(
            PlayerConfig(
                f"stockfish {number:,} nodes",
                TimeControl(nodes=number),
                command=(path,),
                uci_options={"Threads": 1, "Hash": 16},
            ),
            guess=STOCKFISH_NODES.get(number, UNKNOWN_ELO),
        )
        for number in nodes
    ]


def maia_networks(folder: Path, options: Options) -> list[LadderPlayer]:
    """Return the networks of a folder, each at 1 node: the move that its policy prefers."""
    players = []
    for file in sorted(folder.glob("*.pb.gz")):
        name = file.name.removesuffix(".pb.gz")
        rating = re.search(r"\d{4}", name)
        players.append(
            LadderPlayer(
                PlayerConfig(name, TimeControl(nodes=1), options=options.changed(weights=str(file))),
                guess=float(rating[0]) + MAIA_EXCESS if rating else UNKNOWN_ELO,
            )
        )
    return players


def included_networks(names: Sequence[str], nodes: Sequence[int], options: Options) -> list[LadderPlayer]:
    """Return networks by name or file, each with several numbers of nodes per move."""
    return [
        LadderPlayer(
            PlayerConfig(
                f"{Path(name).name.removesuffix('.pb.gz')} {number:,} node{'s' * (number != 1)}",
                TimeControl(nodes=number),
                options=options.changed(weights=name),
            ),
            guess=NETWORK_NODES.get(number, UNKNOWN_ELO),
        )
        for name in names
        for number in nodes
    ]


def levels(elos: Sequence[int], options: Options) -> list[LadderPlayer]:
    """Return this engine with limited strength: UCI_LimitStrength and UCI_Elo."""
    return [
        LadderPlayer(
            PlayerConfig(
                f"level {elo}",
                TimeControl(nodes=calibrated(elo).nodes),
                options=with_network(options.changed(limit_strength=True, elo=elo)),
            ),
            guess=elo,
        )
        for elo in elos
    ]


def further_players(texts: Sequence[str], options: Options) -> list[LadderPlayer]:
    """Return players in the syntax of `wavefront match --player`. Raises SettingsError."""
    return [
        LadderPlayer(
            player_config(Table(f"--player {text}", player_table(text)), DEFAULT_TIME, options),
            guess=UNKNOWN_ELO,
        )
        for text in texts
    ]


def with_names(players: Sequence[LadderPlayer]) -> list[LadderPlayer]:
    """Return the players, each with a name. Raises ValueError if two have the same one."""
    configs = named([player.config for player in players])
    return [
        LadderPlayer(config, player.guess, player.label)
        for player, config in zip(players, configs, strict=True)
    ]


def program_path(name: str) -> str | None:
    """Return the path of a program; Debian keeps games outside of the usual PATH."""
    return shutil.which(name) or shutil.which(name, path="/usr/games")


def program_version(path: str) -> str:
    """Return the name and version that a UCI program reports; "unknown" if it reports none."""
    try:
        output = subprocess.run(
            [path], input="uci\nquit\n", capture_output=True, text=True, timeout=30
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return "unknown"
    names = [line.removeprefix("id name ") for line in output.splitlines() if line.startswith("id name ")]
    return names[0].strip() if names else "unknown"
