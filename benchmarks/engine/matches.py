# SPDX-License-Identifier: GPL-3.0-or-later
"""Costs of matches: the runner's time per move, memory of many games, and use of the evaluator.

python -m benchmarks.engine.matches [overhead] [programs] [memory] [evaluator]
    [--weights FILE] [--backend NAME] [--program FILE] [--nodes N] [--seconds S] [--rounds N]

overhead: whole games by players that answer at once, with everything in a match except the search: clocks,
rules, PGN, journal, statistics. programs: the same between two UCI programs (--program) at 50 nodes a move.
memory: 500 concurrent games on the `random` backend. evaluator: positions per second of 64 concurrent games,
relative to the bare backend's best. Games and backend alternate, because other work on the machine changes
both. It also prints the distribution of CPU time, which such work changes less.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import statistics
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

from benchmarks.common.figures import Figure, print_figures
from benchmarks.common.plain_backend import best_rate, best_sizes
from benchmarks.common.tuned import tuned
from engine._core import Game
from engine.apps.campaign.display import QuietView
from engine.apps.match.campaign import MatchCampaign
from engine.apps.match.config import MatchConfig, PlayerConfig
from engine.apps.match.job import MatchExecutor
from engine.apps.match.timecontrol import TimeControl
from engine.options import Options
from engine.search.pool import PoolStatistics, SearchPool
from engine.search.report import Line, Report
from evaluator.backends import open_backend
from evaluator.network import SHIPPED_NETWORK, load_network

OVERHEAD_PERCENT = 2.0
MEMORY_MB = 1500.0
EVALUATOR_PERCENT = 90.0
MEMORY_GAMES = 500
EVALUATOR_GAMES = 64

QUIET = QuietView(lambda text: print(text, file=sys.stderr))
"""View that prints only notes."""


class _InstantPool:
    """Answers every search at once with a random move, from a thread like a real pool."""

    def __init__(self) -> None:
        self.moves = 0
        self._requests: SimpleQueue[tuple[Game, Future[Report]] | None] = SimpleQueue()
        self._random = random.Random(1)
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def player(self, options: Options) -> _InstantPool:
        return self

    def search(self, game: Game, limits: Any, *, clock_started: float | None = None) -> Future[Report]:
        future: Future[Report] = Future()
        self._requests.put((game, future))
        return future

    def new_game(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def statistics(self) -> PoolStatistics:
        return PoolStatistics()

    def close(self) -> None:
        self._requests.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (request := self._requests.get()) is not None:
            game, future = request
            move = self._random.choice(game.legal_moves())
            self.moves += 1
            line = Line((move,), 100, 0.1, (0.4, 0.3, 0.3), 80.0, 0.2)
            future.set_result(Report(best_move=move, ponder=None, lines=(line,), nodes=100, depth=5))


def programs(program: str) -> list[Figure]:
    """Measure this process's CPU time per move of a match between UCI programs."""
    path = shutil.which(program) or shutil.which(program, path="/usr/games")
    if path is None:
        print(f"programs: left out, there is no {program} here (apt-get install stockfish)")
        return []
    players = [PlayerConfig(name, TimeControl(nodes=50), command=(path,)) for name in ("a", "b")]
    with tempfile.TemporaryDirectory() as folder:
        config = _match(folder, players, games=60, concurrency=2)
        campaign = MatchCampaign(config)
        began = time.process_time()
        asyncio.run(campaign.run(QUIET))
        seconds = time.process_time() - began
    moves = campaign.throughput.pool.moves
    print(f"programs: {1e6 * seconds / moves:.0f} µs of processor time per move, {moves:,} moves")
    percent = 1e4 * seconds / moves
    return [
        Figure("programs: runner, % of a core per 100 moves/s", percent, OVERHEAD_PERCENT, at_least=False)
    ]


def _on(make_pool: Callable[[Any], Any]) -> Any:
    """Return a factory of executors that use our pool."""

    async def make_executor(job: Any, log: Any) -> MatchExecutor:
        return MatchExecutor(job, make_pool(log))

    return make_executor


def _match(folder: str, players: Sequence[PlayerConfig], **values: Any) -> MatchConfig:
    return MatchConfig(tuple(players), output=str(Path(folder) / "match"), **values)


def overhead() -> list[Figure]:
    """Measure this process's CPU time per move of a match whose searches cost nothing."""
    players = [PlayerConfig(name, TimeControl(nodes=100)) for name in ("a", "b")]
    with tempfile.TemporaryDirectory() as folder:
        config = _match(folder, players, games=100, concurrency=16)
        pool = _InstantPool()
        campaign = MatchCampaign(config)
        began = time.process_time()
        asyncio.run(campaign.run(QUIET, make_executor=_on(lambda log: pool)))
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


@dataclass(frozen=True)
class _Used:
    """Resources used by part of a match. runner, network, sockets: CPU seconds of this process, of the
    evaluator's computing threads, and of its other threads."""

    seconds: float
    evaluations: int
    batches: float
    runner: float
    network: float
    sockets: float

    @property
    def rate(self) -> float:
        return self.evaluations / self.seconds

    def __str__(self) -> str:
        each = [1e6 * spent / max(1, self.evaluations) for spent in (self.runner, self.sockets, self.network)]
        share = 100 * (each[0] + each[1]) / sum(each)
        return (
            f"{self.rate:7,.0f} positions/s, mean batch {self.evaluations / max(1.0, self.batches):5.1f}; "
            f"processor time per position: runner {each[0]:.0f} µs, sockets {each[1]:.0f} µs, "
            f"network {each[2]:.0f} µs: runner and sockets {share:.1f} %"
        )


@dataclass
class _Run:
    """A match that is ended after some seconds, and its pool."""

    config: MatchConfig
    pool: SearchPool | None = None

    def _make_pool(self, log: Any) -> SearchPool:
        self.pool = SearchPool(log=log)
        return self.pool

    async def watch(self, seconds: float, settle: float) -> tuple[MatchCampaign, _Used, float]:
        """Run the match; return it, resources used after `settle` seconds, and peak megabytes."""
        campaign = MatchCampaign(self.config)
        task = asyncio.create_task(campaign.run(QUIET, make_executor=_on(self._make_pool)))
        process, megabytes = psutil.Process(), 0.0
        while not campaign.playing and not task.done():
            await asyncio.sleep(0.1)
        await asyncio.sleep(settle)
        assert self.pool is not None
        first = self._reading()
        while not task.done() and time.perf_counter() < first[0] + seconds:
            await asyncio.sleep(0.5)
            megabytes = max(megabytes, process.memory_info().rss / 2**20)
        used = self._used(first, self._reading())
        if not task.done():
            task.cancel()
        await task
        return campaign, used, megabytes

    def _reading(self) -> tuple[float, PoolStatistics, float, dict[int, float]]:
        assert self.pool is not None
        pids = self.pool.evaluator_pids()
        threads = psutil.Process(pids[0]).threads() if pids else []
        spent = {thread.id: thread.user_time + thread.system_time for thread in threads}
        return time.perf_counter(), self.pool.statistics(), time.process_time(), spent

    @staticmethod
    def _used(
        first: tuple[float, PoolStatistics, float, dict[int, float]],
        last: tuple[float, PoolStatistics, float, dict[int, float]],
    ) -> _Used:
        threads = sorted(
            (spent - first[3].get(number, 0.0) for number, spent in last[3].items()), reverse=True
        )
        computing = psutil.cpu_count(logical=False) or 1
        return _Used(
            seconds=last[0] - first[0],
            evaluations=last[1].evaluations - first[1].evaluations,
            batches=_batches(last[1]) - _batches(first[1]),
            runner=last[2] - first[2],
            network=sum(threads[:computing]),
            sockets=sum(threads[computing:]),
        )


def _batches(total: PoolStatistics) -> float:
    return total.evaluations / total.mean_batch if total.mean_batch else 0.0


def memory(seconds: float) -> list[Figure]:
    """Measure the resident memory of one process that plays many games concurrently."""
    options = Options(backend="random")
    players = [PlayerConfig(name, TimeControl(nodes=20), options=options) for name in ("a", "b")]
    with tempfile.TemporaryDirectory() as folder:
        config = _match(folder, players, games=10_000, concurrency=MEMORY_GAMES)
        campaign, used, megabytes = asyncio.run(_Run(config).watch(seconds, seconds / 4))
    moves = campaign.throughput.pool.moves
    print(f"memory: {moves:,} moves of finished games, {used.rate:,.0f} positions/s, {megabytes:.0f} MB")
    return [Figure(f"megabytes with {MEMORY_GAMES} games at once", megabytes, MEMORY_MB, at_least=False)]


def evaluator(weights: str, name: str, nodes: int, seconds: float, rounds: int) -> list[Figure]:
    """Measure positions per second of many games, relative to the bare backend's best."""
    options = Options(backend=tuned(name), weights=weights)
    players = [PlayerConfig(name, TimeControl(nodes=nodes), options=options) for name in ("a", "b")]
    ratios = []
    with open_backend(name, load_network(weights or SHIPPED_NETWORK)) as backend:
        sizes = best_sizes(backend, 0.8)
        print(f"evaluator: fastest in batches of {', '.join(map(str, sizes))}")
        own = best_rate(backend, sizes, 3.0)
        for _ in range(rounds):
            with tempfile.TemporaryDirectory() as folder:
                config = _match(folder, players, games=400, concurrency=EVALUATOR_GAMES)
                _, used, _ = asyncio.run(_Run(config).watch(seconds, settle=3.0))
            before, own = own, best_rate(backend, sizes, 3.0)
            ratios.append(200 * used.rate / (before + own))
            print(
                f"evaluator: bare {before:,.0f} and {own:,.0f}; {EVALUATOR_GAMES} games {used}; "
                f"{ratios[-1]:.1f} %",
                flush=True,
            )
    share = statistics.median(ratios)
    return [Figure(f"% of the evaluator's best, {EVALUATOR_GAMES} games", share, EVALUATOR_PERCENT)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = ("overhead", "programs", "memory", "evaluator")
    parser.add_argument("parts", nargs="*", choices=[*parts, []], help="which (default: all)")
    parser.add_argument("--weights", default="", help="network file (default: wavefront-cpu)")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--program", default="stockfish", help="for `programs` (default stockfish)")
    parser.add_argument("--nodes", type=int, default=200, help="per move, for `evaluator` (default 200)")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each measured match (default 15)")
    parser.add_argument("--rounds", type=int, default=5, help="of `evaluator` (default 5)")
    arguments = parser.parse_args()
    figures = []
    for part in arguments.parts or parts:
        if part == "overhead":
            figures += overhead()
        elif part == "programs":
            figures += programs(arguments.program)
        elif part == "memory":
            figures += memory(arguments.seconds)
        else:
            figures += evaluator(
                arguments.weights, arguments.backend, arguments.nodes, arguments.seconds, arguments.rounds
            )
    print_figures(figures)


if __name__ == "__main__":
    main()
