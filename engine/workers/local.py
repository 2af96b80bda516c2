# SPDX-License-Identifier: GPL-3.0-or-later
"""Games on this machine: in this process, or in several if one cannot keep the evaluators busy."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from math import ceil
from typing import TYPE_CHECKING

from engine.evaluation.errors import NoEvaluatorError
from engine.search.loop.batching import FAST_DEVICE
from engine.workers.executor import Game, GameExecutor, GameJob, Log, WorkerContext
from engine.workers.processes import ProcessExecutor
from protocol.common.processors import usable_processors

if TYPE_CHECKING:
    from engine.search.pool import SearchPool
    from protocol.wire.messages import Curve

MOST_GROWTH = 0.25
"""Assumed time of a further position, at least, as a share of the measured one: two sizes may be close."""


async def local_executor(
    job: GameJob[Game], log: Log, *, workers: int = 0, pool: SearchPool | None = None
) -> GameExecutor[Game]:
    """Return an executor on this machine, without opening it.

    workers: number of processes; 0 uses as many as the evaluators' curves require, and waits for the
    evaluators. pool: closed with the executor; None opens one if necessary. Raises the same as the job's
    `games_at_once`.
    """
    from engine.search.pool import SearchPool

    if pool is None and job.engines:
        pool = SearchPool(log=log)
    try:
        processes = await asyncio.to_thread(_process_count, job, workers, pool)
    except BaseException:
        if pool is not None:
            await asyncio.to_thread(pool.close)
        raise
    if processes == 1:
        return job.executor(log, WorkerContext(), pool)
    log(f"games are played by {processes} processes")
    return ProcessExecutor(processes, job, log, pool)


def _process_count(job: GameJob[Game], workers: int, pool: SearchPool | None) -> int:
    """Return the number of processes. workers: as configured; 0 means as the evaluators require."""
    try:
        games = job.games_at_once(pool)
        if workers:
            return min(workers, games)
        if pool is None:
            return 1
        clients = dict.fromkeys(client for options in job.engines for client in pool.connections(options))
    except NoEvaluatorError:
        return 1  # The executor in this process reports it when it is opened.
    rates = [expected_rate(client.curve, client.max_batch) for client in clients]
    return workers_for(rates, games, usable_processors())


def expected_rate(curve: Curve, largest: int) -> float:
    """Return the positions per second that a device reaches when its curve is measured up to its largest
    batch: a service measures the larger ones while it runs. The last two sizes say how time grows."""
    from protocol.wire.messages import best_rate

    rate = best_rate(curve)
    if len(curve) < 2 or curve[-1][0] >= largest:
        return rate
    (size, ms), (last, last_ms) = curve[-2:]
    slope = max((last_ms - ms) / (last - size), MOST_GROWTH * last_ms / last)
    return max(rate, 1000 * largest / (last_ms + slope * (largest - last)))


def workers_for(rates: Iterable[float], games: int, cores: int) -> int:
    """Return how many processes keep evaluators busy with N concurrent games. rates: their positions per
    second.

    A quarter of the cores remains for the evaluators. A process gets at least two games.
    """
    return max(1, min(ceil(sum(rates) / FAST_DEVICE), cores * 3 // 4, games // 2))
