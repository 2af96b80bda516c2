# SPDX-License-Identifier: GPL-3.0-or-later
"""Who plays whom, with which colours and from which opening: every game of a match has a number.

The schedule is a pure function of a few numbers, so that a match that was interrupted, or is spread over
machines, knows its games without a list. A longer match begins with the same games as a shorter one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Format = Literal["round-robin", "gauntlet"]


@dataclass(frozen=True, slots=True)
class ScheduledGame:
    """One game of the schedule.

    number: from 0. pair: the games with the same players and opening share it. round: from 0; all games
    of a round have the same opening. white, black: numbers of the players."""

    number: int
    pair: int
    round: int
    white: int
    black: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """All games of a match.

    players: how many, 2 or more. format: everybody plays everybody, or the first plays all others. games:
    of each pairing. pairs: two games per opening, colours reversed (games is then even); else one, with
    colours that alternate from round to round.
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
        """The pairs of players that meet, the lower number first."""
        firsts = range(1) if self.format == "gauntlet" else range(self.players)
        return tuple((first, second) for first in firsts for second in range(first + 1, self.players))

    @property
    def rounds(self) -> int:
        """How many openings are needed."""
        return self.games // self.games_per_pair

    @property
    def games_per_pair(self) -> int:
        return 2 if self.pairs else 1

    def __len__(self) -> int:
        return self.games * len(self.pairings)

    def __getitem__(self, number: int) -> ScheduledGame:
        """The game of a number. Raises IndexError."""
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
