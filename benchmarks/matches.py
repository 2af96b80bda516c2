"""What matches cost: the runner's processor time per move, memory of many games, and how busy the evaluator
is kept.

python benchmarks/matches.py [overhead] [memory] [evaluator] [--weights FILE] [--backend NAME] [--seconds S]

overhead: whole games by players that answer at once, with everything that a match does but the search:
clocks, rules, PGN, journal, statistics. memory: 500 games at once on the `random` backend. evaluator: 64
games at once, their positions per second over the evaluator's own best rate, measured by its bench just
before and after.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import psutil
from figures import Figure, json_of, print_figures

from engine._core import Game
from engine.match.config import MatchConfig, PlayerConfig
from engine.match.games import MatchPlace
from engine.match.runner import MatchRunner
from engine.match.timecontrol import TimeControl
from engine.options import Options
from engine.pool import PoolStatistics, SearchPool
from engine.report import Line, Report

OVERHEAD_PERCENT = 2.0
MEMORY_MB = 1500.0
EVALUATOR_PERCENT = 90.0
MEMORY_GAMES = 500
EVALUATOR_GAMES = 64


class _Silent:
    """Shows nothing."""

    def started(self, state: Any) -> None:
        pass

    def game_over(self, state: Any, record: Any) -> None:
        pass

    def tick(self, state: Any) -> None:
        pass

    def note(self, text: str) -> None:
        print(text, file=sys.stderr)


class _InstantPool:
    """Answers every search at once with a random move, from a thread as a real pool does."""

    def __init__(self) -> None:
        self.moves = 0
        self._asked: SimpleQueue[tuple[Game, Future[Report]] | None] = SimpleQueue()
        self._random = random.Random(1)
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def player(self, options: Options) -> _InstantPool:
        return self

    def search(self, game: Game, limits: Any, *, clock_started: float | None = None) -> Future[Report]:
        future: Future[Report] = Future()
        self._asked.put((game, future))
        return future

    def new_game(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def statistics(self) -> PoolStatistics:
        return PoolStatistics()

    def close(self) -> None:
        self._asked.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (asked := self._asked.get()) is not None:
            game, future = asked
            move = self._random.choice(game.legal_moves())
            self.moves += 1
            line = Line((move,), 100, 0.1, (0.4, 0.3, 0.3), 80.0, 0.2)
            future.set_result(Report(best_move=move, ponder=None, lines=(line,), nodes=100, depth=5))


def _on(make_pool: Callable[[Any], Any]) -> Any:
    """Plays on a pool of ours."""
    return lambda job, log: MatchPlace(job.config, job.openings, log, make_pool=make_pool)


def _match(folder: str, players: Sequence[PlayerConfig], **values: Any) -> MatchConfig:
    return MatchConfig(tuple(players), output=str(Path(folder) / "match"), **values)


def overhead() -> list[Figure]:
    """Processor time of this process per move of a match whose searches cost nothing."""
    players = [PlayerConfig(name, TimeControl(nodes=100)) for name in ("a", "b")]
    with tempfile.TemporaryDirectory() as folder:
        config = _match(folder, players, games=100, concurrency=16)
        pool = _InstantPool()
        runner = MatchRunner(config, _Silent(), make_place=_on(lambda log: pool))
        began = time.process_time()
        asyncio.run(runner.run())
        seconds = time.process_time() - began
    print(f"overhead: {1e6 * seconds / pool.moves:.0f} µs of processor time per move, {pool.moves:,} moves")
    return [
        Figure(
            "runner, % of a core per 100 moves/s",
            1e4 * seconds / pool.moves,
            OVERHEAD_PERCENT,
            at_least=False,
        )
    ]


@dataclass
class _Run:
    """A match that is ended after some seconds, and the pool it plays on."""

    config: MatchConfig
    pool: SearchPool | None = None

    def _make_pool(self, log: Any) -> SearchPool:
        self.pool = SearchPool(log=log)
        return self.pool

    async def watch(self, seconds: float, settle: float) -> tuple[MatchRunner, float, float]:
        """Let it play; (the runner, positions per second after `settle` seconds, largest resident
        megabytes)."""
        runner = MatchRunner(self.config, _Silent(), make_place=_on(self._make_pool))
        task = asyncio.create_task(runner.run())
        process, megabytes, first = psutil.Process(), 0.0, PoolStatistics()
        while not runner.state.playing and not task.done():
            await asyncio.sleep(0.1)
        began = time.monotonic()
        settled = 0.0
        while not task.done() and time.monotonic() < began + seconds:
            await asyncio.sleep(0.5)
            megabytes = max(megabytes, process.memory_info().rss / 2**20)
            if self.pool is not None and not settled and time.monotonic() >= began + settle:
                settled, first = time.monotonic(), self.pool.statistics()
        assert self.pool is not None
        last = self.pool.statistics()
        rate = (last.evaluations - first.evaluations) / (time.monotonic() - settled)
        if not task.done():
            task.cancel()
        await task
        return runner, rate, megabytes


def memory(seconds: float) -> list[Figure]:
    """Resident memory of one process that plays many games at once."""
    options = Options(backend="random")
    players = [PlayerConfig(name, TimeControl(nodes=20), options=options) for name in ("a", "b")]
    with tempfile.TemporaryDirectory() as folder:
        config = _match(folder, players, games=10_000, concurrency=MEMORY_GAMES)
        runner, rate, megabytes = asyncio.run(_Run(config).watch(seconds, seconds / 4))
    moves = runner.state.speed.moves
    print(f"memory: {moves:,} moves of finished games, {rate:,.0f} positions/s, {megabytes:.0f} MB")
    return [Figure(f"megabytes with {MEMORY_GAMES} games at once", megabytes, MEMORY_MB, at_least=False)]


def evaluator(weights: str, backend: str, seconds: float) -> list[Figure]:
    """Positions per second of many games over the evaluator's best."""
    bench = [sys.executable, "-m", "evaluator", "bench", "--json", "--time-limit", "20", "--backend", backend]
    if weights:
        bench += ["--network", weights]
    options = Options(backend=backend, weights=weights)
    players = [PlayerConfig(name, TimeControl(nodes=200), options=options) for name in ("a", "b")]
    before = json_of(bench)
    with tempfile.TemporaryDirectory() as folder:
        config = _match(folder, players, games=10_000, concurrency=EVALUATOR_GAMES)
        runner, rate, _ = asyncio.run(_Run(config).watch(seconds, seconds / 4))
    after = json_of(bench)
    best = [max(point["positions_per_second"] for point in curve["curve"]) for curve in (before, after)]
    print(
        f"evaluator: {before['network']} on {before['device']}, best {best[0]:,.0f} and {best[1]:,.0f} "
        f"positions/s; {EVALUATOR_GAMES} games {rate:,.0f} positions/s, "
        f"mean batch {runner.state.speed.mean_batch:.1f}"
    )
    share = 100 * rate / (sum(best) / 2)
    return [Figure(f"% of the evaluator's best, {EVALUATOR_GAMES} games", share, EVALUATOR_PERCENT)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = ("overhead", "memory", "evaluator")
    parser.add_argument("parts", nargs="*", choices=[*parts, []], help="which (default: all)")
    parser.add_argument("--weights", default="", help="network file (default: the shipped network)")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each measured match (default 30)")
    arguments = parser.parse_args()
    figures = []
    for part in arguments.parts or parts:
        if part == "overhead":
            figures += overhead()
        elif part == "memory":
            figures += memory(arguments.seconds)
        else:
            figures += evaluator(arguments.weights, arguments.backend, arguments.seconds)
    print_figures(figures)


if __name__ == "__main__":
    main()
