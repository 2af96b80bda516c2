# SPDX-License-Identifier: GPL-3.0-or-later
"""A player's clock in simulated time, with the engine's time manager and stopping rules."""

from __future__ import annotations

from benchmarks.strength.simulated_time import Spent, TimedSearch
from engine.apps.match.timecontrol import GameClock, TimeControl
from engine.search.loop.stopping import TOLERANCE_SHARE, choice_holds, is_settled
from engine.search.time import budget
from engine.search.time.keeper import TimeKeeper

LOOKS = 40
"""Checks of the root's moves within the soft limit; few, because reading them takes real time."""


class SimulatedClock:
    """One player's clock in one game. control: with a base time."""

    def __init__(self, search: TimedSearch, control: TimeControl) -> None:
        self._search = search
        self._clock = GameClock(control)
        self._keeper = TimeKeeper()

    def search(self, ply: int) -> Spent:
        """Search the tree's position, reached after this many plies of the game, and deduct the time."""
        clock, tree, options = self._clock, self._search.tree, self._search.options
        kept = tree.root_info().visits
        granted = self._keeper.budget(
            options,
            remaining_ms=clock.remaining_ms or 0.0,
            increment_ms=clock.control.increment_ms,
            moves_to_go=clock.moves_to_go,
            ply=ply,
            kept_visits=kept,
        )
        next_look = TOLERANCE_SHARE * granted.soft_ms

        def is_over(now: float) -> bool:
            nonlocal next_look
            if now < next_look:
                return False
            next_look = now + granted.soft_ms / LOOKS
            children = tree.children()
            if len(children) < 2:
                return True
            if now >= granted.soft_ms:
                return is_settled(children)
            factor = options.smart_pruning_factor
            to_come = (tree.root_info().visits - kept) / now * (granted.soft_ms - now)
            return factor > 0 and choice_holds(
                children, to_come / factor, options.value_choice_share, options.smart_pruning_margin
            )

        spent = self._search.search(granted.hard_ms, is_over)
        visits = tree.root_info().visits
        self._keeper.finished(budget.Spent(spent.ms, spent.ms, visits, visits - kept), 0.0)
        clock.spend(spent.ms)
        return spent
