# SPDX-License-Identifier: GPL-3.0-or-later
"""The standings of a match: results per player and per pairing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from engine.apps.games.record import GameOutcome, Reason
from engine.apps.match.results.sprt import Decision, Sprt
from engine.apps.match.results.statistics import Tally
from engine.apps.match.schedule import Schedule


@dataclass(slots=True)
class PlayerTotals:
    """One player's games by colour, and its losses by failures."""

    as_white: Tally = field(default_factory=Tally)
    as_black: Tally = field(default_factory=Tally)
    faults: Counter[Reason] = field(default_factory=Counter)


class Standings:
    """Count games, each once, in any order."""

    def __init__(self, schedule: Schedule, sprt: Sprt | None = None) -> None:
        self.schedule = schedule
        self.sprt = sprt
        self.reasons: Counter[Reason] = Counter()
        self.players = [PlayerTotals() for _ in range(schedule.players)]
        self._numbers: set[int] = set()
        self._half_pairs: dict[int, float] = {}
        self.decision: Decision = "continue"
        """The decision of the SPRT. Later games do not change it."""
        self._tallies = {pairing: Tally() for pairing in schedule.pairings}

    @property
    def games(self) -> int:
        """Number of counted games."""
        return len(self._numbers)

    @property
    def finished(self) -> bool:
        """True if all games of the schedule were counted."""
        return self.games >= len(self.schedule)

    def add(self, game: GameOutcome) -> None:
        """Count a game. Raises ValueError if it was counted before or is not in the schedule."""
        if game.number in self._numbers:
            raise ValueError(f"game {game.number + 1} is there twice")
        if not 0 <= game.number < len(self.schedule):
            raise ValueError(f"game {game.number + 1} is beyond the {len(self.schedule)} games of this match")
        scheduled = self.schedule[game.number]
        if (game.pair, game.white, game.black) != (scheduled.pair, scheduled.white, scheduled.black):
            raise ValueError(f"game {game.number + 1} is another one than the schedule says")
        self._numbers.add(game.number)
        self._count_pairing(game)
        self.reasons[game.reason] += 1
        white, black = self.players[game.white], self.players[game.black]
        white.as_white = white.as_white.with_game(game.white_points)
        black.as_black = black.as_black.with_game(1 - game.white_points)
        if game.reason.is_failure and game.white_points != 0.5:
            loser = black if game.white_points == 1 else white
            loser.faults[game.reason] += 1
        if self.decision == "continue":
            self.decision = self._decide()

    def tally(self, first: int, second: int) -> Tally:
        """Return the first player's results against the second. Raises KeyError if they do not meet."""
        if first > second:
            return self._tallies[second, first].reversed()
        return self._tallies[first, second]

    def total(self, player: int) -> Tally:
        """Return a player's results against all opponents."""
        return sum((self.tally(player, other) for other in self.opponents(player)), Tally())

    def opponents(self, player: int) -> list[int]:
        """Return the opponents of a player."""
        return [b if a == player else a for a, b in self._tallies if player in (a, b)]

    def llr(self) -> float:
        """Return the log likelihood ratio of the SPRT; 0 without one."""
        return self.sprt.llr(self.tally(0, 1)) if self.sprt is not None else 0.0

    @property
    def over(self) -> bool:
        """True if no more games are needed."""
        return self.finished or self.decision != "continue"

    def _decide(self) -> Decision:
        # With pairs, wait for the first complete one: single games have another statistical model.
        if self.sprt is None or (self.schedule.pairs and not self.tally(0, 1).finished_pairs):
            return "continue"
        return self.sprt.decide(self.llr())

    def _count_pairing(self, game: GameOutcome) -> None:
        first, second = sorted((game.white, game.black))
        points = game.white_points if game.white == first else 1 - game.white_points
        tally = self._tallies[first, second].with_game(points)
        if self.schedule.pairs:
            before = self._half_pairs.pop(game.pair, None)
            if before is None:
                self._half_pairs[game.pair] = points
            else:
                tally = tally.with_pair(before + points)
        self._tallies[first, second] = tally
