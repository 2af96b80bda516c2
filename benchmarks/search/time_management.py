# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulates the time manager on a clock in a model of games, without an engine and without waiting.

    python -m benchmarks.search.time_management [--games N] [--control 60+0.6] [--choice value|visits]

The model: games start after 8 plies of opening. Their lengths follow lc0's log-logistic
distribution (median 51.5 moves). Searches end at once, early, at the end of their budget, or beyond it, as in
real games (--choice: of the engine's defaults,
which choose the move by value, or of lc0's choice by visits). The next search reuses a random share of the
tree. Each move costs a delay that the search does not see. docs/explanation/time.md gives the source of each
number; `strength.clock_use` measures most of them.

Reports for each time control: the remaining clock at the game's end and its minimum, in percent of the
initial time; the time of the first, the 10th, the 30th and the 60th move in units of the mean move; and games
lost on time.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import fmean

from benchmarks.common.figures import Figure, print_figures
from engine.search.time.budget import Situation, Spent, TimeBudget
from engine.search.time.manager import TimeManager

BOOK_PLIES = 8
"""Plies of the opening, which cost no time: the shipped openings have 6 to 10."""

MIDPOINT, STEEPNESS = 51.5, 7.0
"""Distribution of game lengths: lc0's, from engine games."""

CONTROLS = ("1+0.01", "10+0.1", "60+0.6", "180+2", "300+0", "900+10", "40/300+0")

SHOWN_MOVES = (0, 9, 29, 59)
"""Moves whose time is shown, counted from the first after the book."""

SHORTEST, LONGEST = 20, 200
"""Range of game lengths in moves, including the opening."""

VISITS_PER_MS = 10.0
"""An arbitrary number, because only ratios of trees are compared."""

KEPT, KEPT_NOTHING = (1.5, 3.9), 0.03
"""Share of a tree that the player's next search reuses: parameters of a beta distribution with mean 0.28, and
the probability of almost nothing."""

AT_ONCE_SHARE = 0.05
"""Share of the budget that an immediately ending search uses."""

DELAY_MS = 2.0
"""Mean of each move's extra delay, uniform from 0 to twice as much."""

LEFT_TO_REACH, PEER = 15.0, "lc0 legacy 12.5"
"""Remaining clock, in percent, at the end of a game at 60+0.6: target, and that of lc0's default manager in
the same model (2026-11-26)."""


@dataclass(frozen=True, slots=True)
class Uses:
    """Use of budgets by searches.

    at_once, early, beyond: shares of the searches; the others end with the budget. early_from, early_to,
    beyond_from, beyond_to: range of the uniformly distributed share of the budget that those use.
    """

    at_once: float
    early: float
    early_from: float
    early_to: float
    beyond: float
    beyond_from: float
    beyond_to: float


USES = {
    "value": Uses(0.03, 0.60, 0.25, 0.92, 0.18, 1.05, 2.40),
    "visits": Uses(0.03, 0.80, 0.35, 0.95, 0.04, 1.05, 1.90),
}
"""By choice of the move: by value (the defaults), or like lc0 by visits."""


@dataclass(frozen=True, slots=True)
class Control:
    """A time control: milliseconds at the start and per move; moves of a period, 0 for all."""

    base_ms: float
    increment_ms: float
    period: int = 0

    @classmethod
    def of(cls, text: str) -> Control:
        """Parse `seconds+increment` or `moves/seconds+increment`."""
        period, slash, rest = text.rpartition("/")
        base, _plus, increment = rest.partition("+")
        return cls(1000 * float(base), 1000 * float(increment or 0), int(period) if slash else 0)

    @property
    def overhead_ms(self) -> float:
        """The engine's reserve, 100 ms by default."""
        return 100.0


@dataclass(slots=True)
class Played:
    """One game. left, least: milliseconds on the clock at the end and at its minimum. times:
    milliseconds of each move."""

    left: float = 0.0
    least: float = math.inf
    times: list[float] = field(default_factory=list)

    @property
    def lost(self) -> bool:
        return self.least <= 0


def game_lengths(games: int, random: Random) -> list[int]:
    """Return the numbers of moves after the book, for each game."""
    lengths: list[int] = []
    while len(lengths) < games:
        share = random.random()
        length = MIDPOINT * (share / (1 - share)) ** (1 / STEEPNESS)
        if SHORTEST < length < LONGEST:
            lengths.append(int(length) - BOOK_PLIES // 2)
    return lengths


def time_used(budget: TimeBudget, uses: Uses, random: Random) -> float:
    """Return the milliseconds that a search uses of its budget."""
    kind = random.random()
    used = budget.soft_ms
    if kind < uses.at_once:
        used *= AT_ONCE_SHARE
    elif kind < uses.at_once + uses.early:
        used *= random.uniform(uses.early_from, uses.early_to)
    elif kind > 1 - uses.beyond and budget.hard_ms > budget.soft_ms:
        used = min(budget.hard_ms, used * random.uniform(uses.beyond_from, uses.beyond_to))
    return max(1.0, used)


def play(control: Control, length: int, uses: Uses, random: Random) -> Played:
    """Simulate the clock of one side through a game."""
    manager, played = TimeManager(), Played()
    clock, kept = control.base_ms, 0.0
    for move in range(length):
        situation = Situation(
            clock,
            control.increment_ms,
            control.period - move % control.period if control.period else None,
            BOOK_PLIES + 2 * move,
            control.overhead_ms,
            DELAY_MS,
            int(kept),
        )
        budget = manager.budget(situation)
        used = time_used(budget, uses, random)
        playouts = VISITS_PER_MS * used
        tree = kept + playouts
        manager.done(budget, Spent(used, used, int(tree), int(playouts)))
        clock -= used + random.uniform(0, 2 * DELAY_MS)
        played.least = min(played.least, clock)
        played.times.append(used)
        kept = 0.0 if random.random() < KEPT_NOTHING else tree * random.betavariate(*KEPT)
        clock += control.increment_ms
        if control.period and (move + 1) % control.period == 0:
            clock += control.base_ms
    played.left = clock
    return played


def line(control: Control, games: Sequence[Played]) -> str:
    """Return the table's line of a time control; the module explains the numbers."""
    mean = fmean(time for game in games for time in game.times)
    shares = (
        fmean(game.times[move] for game in games if len(game.times) > move) / mean for move in SHOWN_MOVES
    )
    curve = " ".join(f"{share:5.2f}" for share in shares)
    least = 100 * min(game.least for game in games) / control.base_ms
    lost = sum(game.lost for game in games)
    return f"{left(control, games):6.1f} % {least:6.1f} % {lost:5}   {curve}"


def left(control: Control, games: Sequence[Played]) -> float:
    """Return the mean share of the initial time that is left at the end, in percent."""
    return 100 * fmean(game.left for game in games) / control.base_ms


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--games", type=int, default=1000)
    parser.add_argument("--control", action="append", help="time control (default: a list of them)")
    parser.add_argument("--choice", choices=[*USES], default="value", help="of the move (default value)")
    parser.add_argument("--json", action="store_true", help="print the figure alone, as JSON")
    arguments = parser.parse_args()
    uses = USES[arguments.choice]
    figures = []
    if not arguments.json:
        print(f"{'':12} {'left':>8} {'least':>8} {'lost':>5}   by move")
    for text in arguments.control or CONTROLS:
        control = Control.of(text)
        games = [
            play(control, length, uses, Random(number))
            for number, length in enumerate(game_lengths(arguments.games, Random(1)))
        ]
        if text == "60+0.6":
            name = "% of the clock left at the end, 60+0.6"
            figures.append(Figure(name, left(control, games), LEFT_TO_REACH, at_least=False, peer=PEER))
        if not arguments.json:
            print(f"{text:12} {line(control, games)}", flush=True)
    print_figures(figures, as_json=arguments.json)


if __name__ == "__main__":
    main()
