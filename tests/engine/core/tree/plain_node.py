# SPDX-License-Identifier: GPL-3.0-or-later
"""A position of the plain search: what its visits have brought, and what follows of its value.

Slow and close to the formulas of docs/explanation/search.md: everything is summed up anew from the moves.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field
from statistics import pvariance

FIRST_VALUE_STEPS = 32767
"""From a draw to a win: what a node keeps of its first visit's value."""


@dataclass(frozen=True)
class Rules:
    """What the search does beyond PUCT; the names are those of the core's SearchParams."""

    cpuct: float = 1.745
    known_draws: str = "off"
    two_fold_draws: bool = False
    sticky_endgames: bool = False
    transposition_visits: int = 0
    value_choice_share: float = 1.0
    value_choice_deviations: float = 0.0
    moves_left_max_effect: float = 0.0
    subtree_value_bias: float = 0.0


@dataclass(frozen=True)
class Value:
    """q: win less loss, d: draw, for the side to move; m: plies to the end of the game."""

    q: float
    d: float
    m: float


def exact(result: int, plies: float = 0.0) -> Value:
    return Value(result, float(result == 0), plies)


@dataclass
class PlainNode:
    """A position. Values are from its own side's view.

    priors: of its moves, the best first; none where the game is over. first: what its first visit brought.
    bounds: the least and the best result proven. cycle: plies since it occurred before, where it counts as a
    draw for that. taken_off: what the last look at it took off the sum of its values. ended: visits
    after the first that went no further. raw: the network's q. pattern: the last move. error: of the
    network, as it was told last, and its weight.
    """

    priors: dict[str, float]
    first: Value
    visits: int = 1
    bounds: tuple[int, int] = (-1, 1)
    cycle: int = 0
    taken_off: float = 0.0
    ended: int = 0
    raw: float = 0.0
    pattern: Hashable = None
    error: tuple[float, float] = (0.0, 0.0)
    children: dict[str, PlainNode] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.sum, self.d, self.m = self.first.q, self.first.d, self.first.m

    @property
    def q(self) -> float:
        return self.sum / self.visits

    @property
    def proven(self) -> bool:
        return self.bounds[0] == self.bounds[1]

    @property
    def decided(self) -> bool:
        """Whether a visit ends here."""
        return self.proven or not self.priors

    def brought(self) -> list[float]:
        """The values of all visits. What is proven has brought that with each."""
        if self.decided:
            return [self.q] * self.visits
        return [self.first.q] + [-value for child in self.children.values() for value in child.brought()]

    def deviation(self) -> float:
        return math.sqrt(pvariance(self.brought()))

    def deviation_with_prior(self) -> float:
        """sigma^2 = (4 * 0.2^2 + N v) / (4 + N)"""
        variance = 4 * 0.2**2 + self.visits * self.deviation() ** 2
        return math.sqrt(variance / (4 + self.visits))

    def visit_again(self) -> None:
        """One visit more of a position that is decided."""
        self.sum, self.visits, self.ended = self.sum + self.q, self.visits + 1, self.ended + 1

    def refresh(self, rules: Rules, news_below: bool = False) -> bool:
        """Visits, bounds and value from the moves', which have changed.

        news_below: something was proven, or is no draw any more. True if that is so for the positions above,
        too.
        """
        children = list(self.children.values())
        self.visits = 1 + self.ended + sum(child.visits for child in children)
        self.d = (self.first.d + sum(c.visits * c.d for c in children)) / self.visits
        self.m = (self.first.m + sum(c.visits * (c.m + 1) for c in children)) / self.visits
        tightened = rules.sticky_endgames and self._tighten()
        if self.proven:
            self._take(exact(self.bounds[0], self._plies()))
            return tightened
        full = self.first.q - sum(child.sum for child in children)
        if tightened or news_below or self._known_draw(rules):
            self.taken_off = full - self.visits * self._derived(rules)
        self.sum = full - self.taken_off
        return tightened or news_below

    def _take(self, value: Value) -> None:
        self.sum, self.d, self.m = value.q * self.visits, value.d, value.m

    def _tighten(self) -> bool:
        """The bounds that the moves' leave; whether they are others than before."""
        before = self.bounds
        bounds = [(-child.bounds[1], -child.bounds[0]) for child in self.children.values()]
        if len(self.children) < len(self.priors):
            bounds.append((-1, 1))
        self.bounds = max(low for low, _ in bounds), max(high for _, high in bounds)
        return self.bounds != before

    def _plies(self) -> float:
        """To the end of a game that is decided: the quickest win, or the longest other end."""
        proven = [child for child in self.children.values() if child.proven]
        if self.bounds[0] == 1:
            return 1 + min(child.m for child in proven if child.bounds[0] == -1)
        return 1 + max(child.m for child in proven)

    def _known_draw(self, rules: Rules) -> bool:
        return rules.known_draws != "off" and (0 in self.bounds or self._can_repeat(rules))

    def _can_repeat(self, rules: Rules) -> bool:
        return rules.known_draws == "repetition" and any(child.cycle for child in self.children.values())

    def _derived(self, rules: Rules) -> float:
        """The value by the moves."""
        first = round(self.first.q * FIRST_VALUE_STEPS) / FIRST_VALUE_STEPS
        q = (first - sum(child.sum for child in self.children.values())) / self.visits
        if not self._known_draw(rules):
            return q
        low, high = self.bounds
        return min(max(q, low, 0 if self._can_repeat(rules) else -1), high)
