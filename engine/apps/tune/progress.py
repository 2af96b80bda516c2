# SPDX-License-Identifier: GPL-3.0-or-later
"""The progress of a tuning: results of iterations, and the values after each.

Many iterations run concurrently. One starts with the values of that moment, and moves the values when its
last game is over, as in fishtest. So the values follow from the order of the games in the journal.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.apps.games.record import GameOutcome
from engine.apps.tune.config import TuneConfig
from engine.apps.tune.spsa import Values


@dataclass(frozen=True, slots=True)
class Step:
    """A finished iteration.

    number: from 0. shift: c_k delta of each parameter, in units of c_end. score: games won by theta+, less
    those lost. theta: the values after it.
    """

    number: int
    shift: Values
    score: float
    theta: Values


@dataclass(slots=True)
class _Running:
    """An iteration that has started. theta: the values around which it plays. games: counted ones."""

    theta: Values
    games: int = 0
    score: float = 0.0


class Progress:
    """The iterations so far. Belongs to the event loop."""

    def __init__(self, config: TuneConfig) -> None:
        self.config = config
        self.spsa = config.spsa
        self.theta: Values = tuple(parameter.start for parameter in config.parameters)
        self.steps: list[Step] = []
        self._running: dict[int, _Running] = {}

    def started(self, game: int, theta: Values | None = None) -> Values:
        """Return the values around which a game's iteration plays. The first call starts it.

        theta: values in the journal (default: the current ones).
        """
        iteration = game // self.config.games_per_iteration
        return self._running.setdefault(iteration, _Running(theta or self.theta)).theta

    def changes(self, game: int) -> dict[int, dict[str, float]]:
        """Return the options that a game changes, by player number."""
        iteration, theta, plus = game // self.config.games_per_iteration, self.started(game), self.config.plus
        names = [parameter.name for parameter in self.config.parameters]
        return {
            player: dict(zip(names, self.spsa.played(iteration, theta, side), strict=True))
            for player, side in ((plus, 1), (plus + 1, -1))
        }

    def count(self, game: GameOutcome) -> bool:
        """Count a game of a started iteration. Return True if it was the iteration's last one."""
        iteration, plus = game.number // self.config.games_per_iteration, self.config.plus
        running = self._running[iteration]
        running.games += 1
        of_white = 2 * game.white_points - 1
        # Against an opponent, the games that theta- loses count for theta+.
        running.score += of_white if plus == game.white or plus + 1 == game.black else -of_white
        if running.games < self.config.games_per_iteration:
            return False
        del self._running[iteration]
        self.theta = self.spsa.step(iteration, self.theta, running.score)
        self.steps.append(Step(iteration, self.spsa.shift(iteration), running.score, self.theta))
        return True
