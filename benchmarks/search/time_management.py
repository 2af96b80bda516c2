"""What time managers do with a clock, played through in a model of games: no engine, no waiting.

    python -m benchmarks.search.time_management [--games N] [--managers 'adaptive; legacy'] [--control 60+0.6]

The model: games begin after 16 plies of opening; their lengths follow the log-logistic distribution that the
managers plan with (median 51.5 moves). Of all searches 12 % end at once, 48 % between 40 % and 100 % of their
budget (smart pruning), 40 % at its end; and for those managers that let an unsettled search go on, 12 % of
the searches take 120 to 250 % of it. The next search finds a random share of the tree: 40 % on average,
nothing in one of ten cases. Each move costs a delay that the search does not see.

For each manager and time control: the clock that is left when the game ends, in percent of the time that it
began with, the least that it ever was; the mean of log2(time per move) and of log2(visits of the tree that a
move is chosen from), both less lc0's `legacy`; time in units of the mean move that the first, the 10th, the
30th and the 60th move got; and games lost on time.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import fmean

from benchmarks.common.figures import Figure, print_figures
from engine.search.time.budget import Situation, Spent, TimeBudget, TimeManager
from engine.search.time.managers import new_manager
from engine.settings.time_managers import MANAGERS

BOOK_PLIES = 16

MIDPOINT, STEEPNESS = 51.5, 7.0
"""Of the lengths of games: lc0's, from games of engines."""

CONTROLS = ("1+0.01", "10+0.1", "60+0.6", "180+2", "300+0", "900+10", "40/300+0")

SHOWN_MOVES = (0, 9, 29, 59)
"""Moves, counted from the first after the book, whose time is shown."""

VISITS_PER_MS = 10.0

DELAY_MS = 2.0
"""Mean of what each move costs besides, uniform from 0 to twice as much."""

LEFT_TO_REACH = 15.0
"""Percent of the clock that may be left at the end of a game at 60+0.6."""


@dataclass(frozen=True, slots=True)
class Control:
    """A time control: milliseconds at the start and for each move; moves of a period, 0 for all."""

    base_ms: float
    increment_ms: float
    period: int = 0

    @classmethod
    def of(cls, text: str) -> Control:
        """From `seconds+increment` or `moves/seconds+increment`."""
        period, slash, rest = text.rpartition("/")
        base, _plus, increment = rest.partition("+")
        return cls(1000 * float(base), 1000 * float(increment or 0), int(period) if slash else 0)

    @property
    def overhead_ms(self) -> float:
        """The reserve: what the engine keeps back, 100 ms by default."""
        return 100.0


@dataclass(slots=True)
class Played:
    """One game. left, least: milliseconds on the clock, in the end and at its lowest. times, trees:
    milliseconds and visits of each move."""

    left: float = 0.0
    least: float = math.inf
    times: list[float] = field(default_factory=list)
    trees: list[float] = field(default_factory=list)

    @property
    def lost(self) -> bool:
        return self.least <= 0


def game_lengths(games: int, random: Random) -> list[int]:
    """Moves after the book of so many games."""
    lengths: list[int] = []
    while len(lengths) < games:
        share = random.random()
        length = MIDPOINT * (share / (1 - share)) ** (1 / STEEPNESS)
        if 20 < length < 200:
            lengths.append(int(length) - BOOK_PLIES // 2)
    return lengths


def time_used(budget: TimeBudget, random: Random) -> float:
    """What a search makes of its budget, in milliseconds."""
    kind = random.random()
    used = budget.soft_ms
    if kind < 0.12:
        used *= 0.05
    elif kind < 0.60:
        used *= random.uniform(0.4, 1)
    elif kind > 0.88 and budget.hard_ms > budget.soft_ms:
        used = min(budget.hard_ms, used * random.uniform(1.2, 2.5))
    return max(1.0, used)


def play(manager: TimeManager, control: Control, length: int, random: Random) -> Played:
    """The clock of one side through a game."""
    played = Played()
    clock, tree, kept = control.base_ms, 0.0, 0.0
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
        used = time_used(budget, random)
        playouts = VISITS_PER_MS * used
        tree = kept + playouts
        manager.done(budget, Spent(used, used, int(tree), int(playouts)))
        clock -= used + random.uniform(0, 2 * DELAY_MS)
        played.least = min(played.least, clock)
        played.times.append(used)
        played.trees.append(tree)
        kept = 0.0 if random.random() < 0.1 else tree * random.betavariate(2, 2.5)
        clock += control.increment_ms
        if control.period and (move + 1) % control.period == 0:
            clock += control.base_ms
    played.left = clock
    return played


def games_of(manager: str, control: Control, games: int) -> list[Played]:
    """The same games, move by move, for every manager."""
    lengths = game_lengths(games, Random(1))
    return [
        play(new_manager(manager), control, length, Random(number)) for number, length in enumerate(lengths)
    ]


def mean_log2(games: Sequence[Played], values: Callable[[Played], Sequence[float]]) -> float:
    return fmean(fmean(map(math.log2, values(game))) for game in games)


@dataclass(frozen=True, slots=True)
class Row:
    """A manager at a time control; see the module for what the numbers are."""

    manager: str
    left: float
    least: float
    time: float
    tree: float
    lost: int
    curve: tuple[float, ...]

    @classmethod
    def of(cls, manager: str, control: Control, games: Sequence[Played], peer: Sequence[Played]) -> Row:
        mean = fmean(time for game in games for time in game.times)
        return cls(
            manager,
            100 * fmean(game.left for game in games) / control.base_ms,
            100 * min(game.least for game in games) / control.base_ms,
            mean_log2(games, lambda game: game.times) - mean_log2(peer, lambda game: game.times),
            mean_log2(games, lambda game: game.trees) - mean_log2(peer, lambda game: game.trees),
            sum(game.lost for game in games),
            tuple(
                fmean(game.times[move] for game in games if len(game.times) > move) / mean
                for move in SHOWN_MOVES
            ),
        )

    def line(self) -> str:
        curve = " ".join(f"{share:5.2f}" for share in self.curve)
        return (
            f"  {self.manager:24} {self.left:6.1f} % {self.least:6.1f} % {self.time:+7.3f} {self.tree:+7.3f} "
            f"{self.lost:5}   {curve}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--games", type=int, default=1000)
    parser.add_argument("--managers", default=";".join(kind.name for kind in MANAGERS), help="with ; between")
    parser.add_argument("--control", action="append", help="time control (default: a list of them)")
    parser.add_argument("--json", action="store_true", help="print the figure alone, as JSON")
    arguments = parser.parse_args()
    managers = [text.strip() for text in arguments.managers.split(";")]
    left = {}
    for text in arguments.control or CONTROLS:
        control = Control.of(text)
        peer = games_of("legacy", control, arguments.games)
        rows = [Row.of(name, control, games_of(name, control, arguments.games), peer) for name in managers]
        left[text] = (rows[0].left, Row.of("legacy", control, peer, peer).left)
        if not arguments.json:
            print(f"{text:26} {'left':>8} {'least':>8} {'time':>7} {'tree':>7} {'lost':>5}   by move")
            print(*(row.line() for row in rows), sep="\n", flush=True)
    if "60+0.6" in left:
        own, peer_left = left["60+0.6"]
        figure = Figure(
            f"% of the clock left at the end, 60+0.6, {managers[0]}",
            own,
            LEFT_TO_REACH,
            at_least=False,
            peer=f"lc0 legacy {peer_left:.1f}",
        )
        print_figures([figure], as_json=arguments.json)


if __name__ == "__main__":
    main()
