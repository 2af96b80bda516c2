# SPDX-License-Identifier: GPL-3.0-or-later
"""The input of a search: position, limits and options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

from engine._core import Game
from engine.options import Options
from engine.search.limits import Limits
from engine.search.report import Line
from engine.search.strength.contempt import NO_CONTEMPT, Contempt
from engine.search.strength.levels import Level, for_repertoire, is_game_move, level_of, with_network
from engine.search.time.keeper import TimeKeeper


@dataclass(frozen=True, slots=True)
class SearchTask:
    """A position to search, and how.

    game: not changed while the search runs. legal_moves: of its current position, in UCI notation, at least
    one. started: when the clock started, in perf_counter seconds. random: for noise, and for the move if the
    options set a temperature. keeper: manages the player's clock. expected: the line that the last search
    expects from here, or None. contempt: adjustment of the network's values. tablebase_moves: root moves that
    tablebases leave; empty if they do not know the position. level: of limited strength; None for full.
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
    level: Level | None = None

    @property
    def search_moves(self) -> list[str]:
        """The legal ones of the root moves that the search is limited to; empty means all."""
        return [move for move in self.limits.search_moves if move in self.legal_moves]

    @property
    def root_moves(self) -> Sequence[str]:
        """The root moves that the search chooses from."""
        return self.tablebase_moves or self.search_moves or self.legal_moves

    @property
    def fullmove(self) -> int:
        """Number of the move to play, counted from 1 at the start of the game."""
        return self.game.ply // 2 + 1

    def weakened(self) -> SearchTask:
        """Return this task, a move of a game, with the level that its options ask for, if any.

        The nodes of the level limit the search, unless the task asks for fewer.
        """
        level = level_of(self.options)
        if level is None or not is_game_move(self.limits):
            return self
        nodes = level.nodes if self.limits.nodes is None else min(level.nodes, self.limits.nodes)
        return replace(
            self,
            game=for_repertoire(self.game, self.options),
            level=level,
            limits=replace(self.limits, nodes=nodes),
            options=with_network(self.options),
        )
