# SPDX-License-Identifier: GPL-3.0-or-later
"""Efficiency of many self-play games: their evaluations per second, relative to the evaluator's best rate.

    python -m benchmarks.engine.selfplay_efficiency [--games N,…] [--workers N,…] [--nodes N] [--weights FILE]
                                             [--backend NAME] [--seconds S] [--rounds N]

The evaluator's rate is that of the bare backend, without service and sockets, in batches of the fastest size.
Games and backend alternate every few seconds, because other work on the machine changes both; the figure is
the median of the rounds' ratios. Each number of games is played with each number of worker processes; auto
lets the program choose.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
from dataclasses import dataclass

import psutil

from benchmarks.common.figures import Figure, print_figures
from benchmarks.common.plain_backend import best_rate, best_sizes
from benchmarks.common.tuned import tuned
from engine import Engine
from engine.games.openings import OpeningSettings, read_openings
from engine.pool.pool import PoolStatistics
from engine.selfplay.config import SELFPLAY_OPTIONS, SelfPlayConfig
from engine.selfplay.job import SelfPlayJob
from engine.workers.local import local_executor
from evaluator.backends import open_backend
from evaluator.network import SHIPPED_NETWORK, load_network

SETTLE_SECONDS = 2.0
"""Seconds until the games have passed their first moves."""


@dataclass(frozen=True)
class Played:
    """Rates of games. rate: evaluations per second. moves: finished searches per second. runner, workers:
    cores used by this process and by all worker processes."""

    rate: float
    moves: float
    mean_batch: float
    runner: float
    workers: float


async def play(config: SelfPlayConfig, workers: int, seconds: float) -> Played:
    """Play games for some seconds. workers: number of processes, 0 for auto."""
    games = config.concurrency
    openings = read_openings(OpeningSettings(), games, seed=config.seed)
    executor = await local_executor(SelfPlayJob(config, tuple(openings)), _note, workers=workers)

    async def one_after_the_other(number: int) -> None:
        while True:
            await executor.play([number])
            number += games

    tasks: list[asyncio.Task[None]] = []
    try:
        await executor.open()
        tasks += [asyncio.create_task(one_after_the_other(number)) for number in range(games)]
        await asyncio.sleep(SETTLE_SECONDS)
        before, cores_before = executor.statistics(), _processor_seconds()
        await asyncio.sleep(seconds)
        after, cores_after = executor.statistics(), _processor_seconds()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await executor.close()
    # Workers report at intervals, so use the time between their reports.
    evaluations, passed = after.evaluations - before.evaluations, after.seconds - before.seconds
    batches = _batches(after) - _batches(before)
    runner, others = (late - early for late, early in zip(cores_after, cores_before, strict=True))
    return Played(
        rate=evaluations / passed,
        moves=(after.searches - before.searches) / passed,
        mean_batch=evaluations / max(1.0, batches),
        runner=runner / seconds,
        workers=others / seconds,
    )


def _note(text: str) -> None:
    print(text, file=sys.stderr)


def _processor_seconds() -> tuple[float, float]:
    """Return the CPU seconds of this process, and of all its workers."""
    own = psutil.Process()
    workers = 0.0
    for child in own.children():
        with contextlib.suppress(psutil.Error):
            if "engine.workers.child" in child.cmdline():
                workers += sum(child.cpu_times()[:2])
    return sum(own.cpu_times()[:2]), workers


def _batches(total: PoolStatistics) -> float:
    return total.evaluations / total.mean_batch if total.mean_batch else 0.0


def _numbers(text: str) -> list[int]:
    return [0 if word == "auto" else int(word) for word in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--games", type=_numbers, default=[64], help="at once (default 64)")
    parser.add_argument("--workers", type=_numbers, default=[0], help="processes (default auto)")
    parser.add_argument("--nodes", type=int, default=400, help="per move (default 400)")
    parser.add_argument(
        "--weights", default=str(SHIPPED_NETWORK), help="network file (default: wavefront-cpu)"
    )
    parser.add_argument("--backend", default="auto")
    parser.add_argument(
        "--seconds", type=float, default=6.0, help="of each turn, half as many for the backend (default 6)"
    )
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()

    ratios: dict[tuple[int, int], list[float]] = {}
    with (
        Engine(weights=arguments.weights, backend=tuned(arguments.backend)) as engine,
        open_backend(arguments.backend, load_network(arguments.weights)) as backend,
    ):
        sizes = best_sizes(backend, 0.8)
        print(f"{backend.name} on {backend.device}, fastest in batches of {', '.join(map(str, sizes))}")
        options = SELFPLAY_OPTIONS.changed(evaluator=engine.evaluator_address)
        own = best_rate(backend, sizes, arguments.seconds / 2)
        cases = [(games, workers) for games in arguments.games for workers in arguments.workers]
        for games, workers in cases * arguments.rounds:
            config = SelfPlayConfig(options=options, nodes=arguments.nodes, games=0, concurrency=games)
            played = asyncio.run(play(config, workers, arguments.seconds))
            before, own = own, best_rate(backend, sizes, arguments.seconds / 2)
            ratios.setdefault((games, workers), []).append(200 * played.rate / (before + own))
            print(
                f"evaluator {before:7,.0f}/s and {own:7,.0f}/s   {_case(games, workers)} "
                f"{played.rate:7,.0f}/s   moves {played.moves:5,.0f}/s   "
                f"mean batch {played.mean_batch:6.1f}   cores: runner "
                f"{played.runner:.2f}, workers {played.workers:.2f}   {ratios[games, workers][-1]:5.1f} %",
                flush=True,
            )
    print_figures(
        [
            Figure(f"% of the evaluator's best, {_case(*case)}", statistics.median(found), 90)
            for case, found in ratios.items()
        ]
    )


def _case(games: int, workers: int) -> str:
    return f"{games} games, {workers or 'auto'} workers"


if __name__ == "__main__":
    main()
