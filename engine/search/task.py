# SPDX-License-Identifier: GPL-3.0-or-later
"""What is to be searched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from engine._core import Game
from engine.options import Options
from engine.search.contempt import NO_CONTEMPT, Contempt
from engine.search.limits import Limits
from engine.search.report import Line
from engine.search.time.keeper import TimeKeeper


@dataclass(frozen=True, slots=True)
class SearchTask:
    """A position to search, and how.

    game: not changed while the search runs. legal_moves: of its current position, in UCI notation, at least
    one. started: when the clock began to run, in perf_counter seconds. random: for noise, and for the move
    when the options set a temperature. keeper: of the player's clock. expected: the line that the last search
    expects from here; None if the game went elsewhere. contempt: what is done to the network's values.
    tablebase_moves: of the root moves, those that tablebases leave; empty if they have no say.
    """

    game: Game
    legal_moves: Sequence[str]
    limits: Limits
    options: Options
    started: float
    random: Random
    keeper: TimeKeeper = field(default_factory=TimeKeeper)
    expected: Line | None = None
    contempt: Contempt = NO_CONTEMPT
    tablebase_moves: Sequence[str] = ()

    @property
    def search_moves(self) -> list[str]:
        """The root moves that the search is limited to; all if empty. Illegal ones are left out."""
        return [move for move in self.limits.search_moves if move in self.legal_moves]

    @property
    def root_moves(self) -> Sequence[str]:
        """The root moves that the search chooses from."""
        return self.tablebase_moves or self.search_moves or self.legal_moves

    @property
    def fullmove(self) -> int:
        """Number of the move that is searched for, counted from 1 at the start of the game."""
        return self.game.ply // 2 + 1
