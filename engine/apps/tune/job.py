# SPDX-License-Identifier: GPL-3.0-or-later
"""Games whose players have the values of their iteration, on any executor of a match's games."""

from __future__ import annotations

from collections.abc import Mapping

from engine.apps.match.players.player import EnginePlayer, Player

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


def use_values(number: int, index: int, player: Player) -> None:
    """Set a player's values of a TunedGame: the `prepare` of a MatchJob."""
    if isinstance(number, TunedGame) and isinstance(player, EnginePlayer) and index in number.changes:
        player.use(player.config.options.changed(**number.changes[index]))
