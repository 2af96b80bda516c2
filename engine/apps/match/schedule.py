# SPDX-License-Identifier: GPL-3.0-or-later
"""The schedule of a match: players, colours and opening of each game, by number.

The schedule is a pure function of a few numbers. So an interrupted or distributed match needs no list of
games. A longer match starts with the same games as a shorter one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Format = Literal["round-robin", "gauntlet"]


@dataclass(frozen=True, slots=True)
class ScheduledGame:
    """One game of the schedule.

    number: from 0. pair: shared by the games with the same players and opening. round: from 0; all games of a
    round have the same opening. white, black: player numbers."""

    number: int
    pair: int
    round: int
    white: int
    black: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """All games of a match.

    players: number of players, at least 2. format: all play all, or the first plays all others. games: per
    pairing. pairs: two games per opening with reversed colours, and an even number of games; otherwise one
    game per opening, with colours that alternate by round.
    """

    players: int
    format: Format = "round-robin"
    games: int = 100
    pairs: bool = True

    def __post_init__(self) -> None:
        if self.players < 2:
            raise ValueError("a match needs two players or more")
        if self.games < 1:
            raise ValueError("a match needs at least one game")
        if self.pairs and self.games % 2:
            raise ValueError(
                f"games come in pairs with colours reversed, and {self.games} is odd: take an even "
                "number, or play without pairs (pairs = false, --no-pairs)"
            )

    @property
    def pairings(self) -> tuple[tuple[int, int], ...]:
        """The pairs of players that meet, lower number first."""
        firsts = range(1) if self.format == "gauntlet" else range(self.players)
        return tuple((first, second) for first in firsts for second in range(first + 1, self.players))

    @property
    def rounds(self) -> int:
        """Number of openings needed."""
        return self.games // self.games_per_pair

    @property
    def games_per_pair(self) -> int:
        return 2 if self.pairs else 1

    def __len__(self) -> int:
        return self.games * len(self.pairings)

    def __getitem__(self, number: int) -> ScheduledGame:
        """Return the game with this number. Raises IndexError."""
        if not 0 <= number < len(self):
            raise IndexError(f"there is no game {number}")
        pair, second_game = divmod(number, self.games_per_pair)
        round, pairing = divmod(pair, len(self.pairings))
        white, black = self.pairings[pairing]
        if second_game or (not self.pairs and round % 2):
            white, black = black, white
        return ScheduledGame(number, pair, round, white, black)

    def __iter__(self) -> Iterator[ScheduledGame]:
        return (self[number] for number in range(len(self)))
