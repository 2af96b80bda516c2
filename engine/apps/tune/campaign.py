# SPDX-License-Identifier: GPL-3.0-or-later
"""A tuning as a campaign: the games of a match whose players have the values of their iteration.

The journal has the values around which each game was played. A resumed run reads its games in their order,
so it continues with the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from time import perf_counter
from typing import Any

from engine.apps.campaign.archive import GameFiles
from engine.apps.games.record import GameOutcome, GameRecord
from engine.apps.match.campaign import MatchCampaign
from engine.apps.match.job import MatchJob
from engine.apps.match.players.player import EnginePlayer, MatchPlayer
from engine.apps.tune.config import TuneConfig
from engine.apps.tune.plot import write_plot
from engine.apps.tune.progress import Progress
from engine.apps.tune.result import summary

Changes = Mapping[int, Mapping[str, float]]
"""Values of options by player number."""


class TunedGame(int):
    """The number of a game, with the values of its players for the process that plays it."""

    changes: Changes

    def __new__(cls, number: int, changes: Changes) -> TunedGame:
        game = super().__new__(cls, number)
        game.changes = changes
        return game

    def __reduce__(self) -> tuple[type[TunedGame], tuple[int, Changes]]:
        return TunedGame, (int(self), self.changes)


def use_values(number: int, index: int, player: MatchPlayer) -> None:
    """Set a player's values of a TunedGame: the `prepare` of a MatchJob."""
    if isinstance(number, TunedGame) and isinstance(player, EnginePlayer) and index in number.changes:
        player.use(player.config.options.changed(**number.changes[index]))


PLOT_SECONDS = 30.0
"""Minimum time between two writes of the plot during the games."""


class TuneCampaign(MatchCampaign):
    """The games of a tuning, in many concurrent iterations."""

    command, name = "tune", "tuning"

    def __init__(self, config: TuneConfig) -> None:
        super().__init__(config.match)
        self.progress = Progress(config)
        self._next_plot = perf_counter() + PLOT_SECONDS
        self._note: Callable[[str], None] = print

    def files(self) -> GameFiles:
        config, files = self.progress.config, super().files()
        header = {**files.header, "identity": config.identity()}
        return replace(files, companions=(*files.companions, config.plot), header=header)

    async def prepare(self, note: Callable[[str], None]) -> None:
        self.job = await MatchJob.read(self.config, note, use_values)
        self._note = note

    def numbered(self, number: int) -> TunedGame:
        """Return the number, with the current values if the game's iteration starts."""
        return TunedGame(number, self.progress.changes(number))

    def entry(self, record: GameRecord) -> dict[str, Any]:
        return super().entry(record) | {"theta": self.progress.started(record.number)}

    def read(self, entry: Mapping[str, Any]) -> GameOutcome:
        outcome = super().read(entry)
        self.progress.started(outcome.number, tuple(float(value) for value in entry["theta"]))
        return outcome

    def add(self, outcome: GameOutcome) -> None:
        super().add(outcome)
        self.progress.count(outcome)

    def count(self, entry: GameRecord) -> None:
        super().count(entry)
        if perf_counter() >= self._next_plot and self.progress.steps:
            self._next_plot = perf_counter() + PLOT_SECONDS
            write_plot(self.progress)

    def summary(self) -> Mapping[str, Any] | None:
        return summary(self.progress, self.standings, self.throughput) if self.outcomes else None

    def close(self) -> None:
        super().close()
        if self.progress.steps:
            write_plot(self.progress, self._note)
