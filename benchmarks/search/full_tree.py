# SPDX-License-Identifier: GPL-3.0-or-later
"""Behaviour of a search when its tree memory is full: speed, depth and pauses.

    python -m benchmarks.search.full_tree [--megabytes 64,512] [--seconds 60] [--plies 40] [--json]

Runs for each size an endless search of a middle game, with default options and almost free evaluations.
Prints a line for the time until the tree is full and for each interval after it. Then plays a game,
searches every move until a tree of 64 MB is full, and compares its contents with those at the start.
`search.endless` does the first with the whole engine and its evaluator.

Pauses are single calls that gather, apply or change the position. Pauses and speed are given in wall time and
in CPU time of the thread, which is more reliable on a busy machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter, thread_time

from benchmarks.common.command_line import count, positive
from benchmarks.common.figures import Figure, print_figures
from benchmarks.search.tree_growth import POSITION
from engine._core import Batch, Game, SearchParams, Tree
from engine.options import Options
from engine.search.tree import search_params

BATCH = 256
INTERVALS = 6
PLAY_MEGABYTES = 64
CLASSICAL_INPUT = 1  # lc0's number of the input planes
PAUSE_MS = 20.0


def shipped_params(megabytes: int) -> SearchParams:
    """Return the engine's default search parameters for a tree of this size."""
    return search_params(Options(tree_memory=megabytes), CLASSICAL_INPUT)


@dataclass(slots=True)
class Pauses:
    """Longest calls so far in milliseconds, in wall time and in CPU time."""

    wall_ms: float = 0.0
    processor_ms: float = 0.0

    def time(self, call: Callable[[], object]) -> None:
        wall, processor = perf_counter(), thread_time()
        call()
        self.processor_ms = max(self.processor_ms, 1000 * (thread_time() - processor))
        self.wall_ms = max(self.wall_ms, 1000 * (perf_counter() - wall))


@dataclass(slots=True)
class Interval:
    """Part of a search. depth: mean over the interval's visits."""

    seconds: float
    processor_seconds: float
    visits: int
    depth: float
    cached: float
    hashfull: int
    pauses: Pauses

    @property
    def nodes_per_second(self) -> float:
        return self.visits / self.seconds

    @property
    def nodes_per_processor_second(self) -> float:
        return self.visits / self.processor_seconds


@dataclass(slots=True)
class EndlessSearch:
    """An unlimited search in a tree of a given size."""

    megabytes: int
    batch: Batch = field(default_factory=lambda: Batch(BATCH))
    tree: Tree = field(init=False)

    def __post_init__(self) -> None:
        self.tree = Tree(shipped_params(self.megabytes))
        self.tree.set_position(Game(POSITION))

    def step(self, pauses: Pauses) -> None:
        pauses.time(lambda: self.tree.collect(self.batch, BATCH))
        pauses.time(lambda: self.tree.apply_random(self.batch))

    def interval(self, goes_on: Callable[[float], bool]) -> Interval:
        """Search while goes_on(elapsed seconds) is true."""
        before, pauses = self.tree.root_info(), Pauses()
        start, processor = perf_counter(), thread_time()
        while goes_on(perf_counter() - start):
            self.step(pauses)
        seconds, processor = perf_counter() - start, thread_time() - processor
        after = self.tree.root_info()
        visits = after.playouts - before.playouts
        depths = after.mean_depth * after.playouts - before.mean_depth * before.playouts
        cached = (after.cache_hits - before.cache_hits) / visits
        return Interval(seconds, processor, visits, depths / visits, cached, after.hashfull, pauses)


def endless(megabytes: int, seconds: float, *, quiet: bool) -> list[Figure]:
    """Search until the tree is full, and then for some seconds."""
    search = EndlessSearch(megabytes)
    intervals = [search.interval(lambda _: not search.tree.root_info().full)]
    each = seconds / INTERVALS
    intervals += [search.interval(lambda passed: passed < each) for _ in range(INTERVALS)]
    if not quiet:
        print(f"\n{megabytes} MB, {search.tree.root_info().visits:,} visits in all")
        print("         seconds   nodes/s  by processor  depth  cached  in use  longest, by processor")
        for number, part in enumerate(intervals):
            print(
                f"{f'full {number}' if number else 'filling':7}  {part.seconds:7.1f}  "
                f"{part.nodes_per_second:8,.0f}  {part.nodes_per_processor_second:12,.0f}  "
                f"{part.depth:5.1f}  {part.cached:6.1%}  {part.hashfull / 1000:6.1%}  "
                f"{part.pauses.wall_ms:4.1f} ms, {part.pauses.processor_ms:4.1f} ms"
            )
    first, last = intervals[0], intervals[-1]
    speed = last.nodes_per_processor_second / first.nodes_per_processor_second
    longest = max(part.pauses.processor_ms for part in intervals)
    return [
        Figure(f"{megabytes} MB: speed of the last interval, % of the first", 100 * speed, 90),
        Figure(f"{megabytes} MB: its depth, % of the first", 100 * last.depth / first.depth, 100),
        Figure(f"{megabytes} MB: longest call, processor ms", longest, PAUSE_MS, at_least=False),
    ]


def played(plies: int, *, quiet: bool) -> list[Figure]:
    """Play the best moves, filling the tree for each of them, until the result is proven."""
    search, moves, reached, pauses = EndlessSearch(PLAY_MEGABYTES), list[str](), list[int](), Pauses()
    while len(reached) < plies and search.tree.root_info().proof is None:
        while not search.tree.root_info().full:
            search.step(pauses)
        reached.append(search.tree.root_info().visits)
        moves.append(search.tree.lines(1)[0].moves[0])
        game = Game(POSITION)
        for move in moves:
            game.push_uci(move)
        pauses.time(partial(search.tree.set_position, game))
    shares = [100 * visits / reached[0] for visits in reached]
    if not quiet:
        print(f"\n{PLAY_MEGABYTES} MB, visits when the tree is full, % of the {reached[0]:,} at first:")
        print(" ".join(f"{share:.0f}" for share in shares))
        print(f"longest call {pauses.wall_ms:.1f} ms, of processor time {pauses.processor_ms:.1f} ms")
    return [
        Figure(f"lowest visits of {len(reached)} plies, % of the first", min(shares), 90),
        Figure("longest call in play, processor ms", pauses.processor_ms, PAUSE_MS, at_least=False),
    ]


def sizes(text: str) -> list[int]:
    return [count(part) for part in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=sizes, default=[64, 512], help="sizes of trees (default 64,512)")
    parser.add_argument(
        "--seconds", type=positive, default=60.0, help="in each tree once it is full (default 60)"
    )
    parser.add_argument("--plies", type=count, default=40, help="of the game (default 40)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    figures = []
    for megabytes in arguments.megabytes:
        figures += endless(megabytes, arguments.seconds, quiet=arguments.json)
    figures += played(arguments.plies, quiet=arguments.json)
    if not arguments.json:
        print()
    print_figures(figures, as_json=arguments.json)


if __name__ == "__main__":
    main()
