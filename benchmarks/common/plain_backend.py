# SPDX-License-Identifier: GPL-3.0-or-later
"""The bare backend, without service and sockets, as the baseline of other measurements."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

from evaluator.backends.common.base import Backend
from evaluator.backends.common.probe import probe_batch
from evaluator.scheduling.latency import LADDER

NEAR = 0.9
"""Sizes with this share of the best rate may be the best, because other work on the machine adds noise."""


def backend_rate(backend: Backend, size: int, seconds: float) -> float:
    """Return positions per second in batches of one size, with the backend's maximum in flight."""
    batches = [probe_batch(size, seed) for seed in range(4)]
    began = perf_counter()

    def work(_: int) -> int:
        done = 0
        while perf_counter() - began < seconds:
            backend.evaluate(batches[done % len(batches)])
            done += 1
        return done

    with ThreadPoolExecutor(backend.max_in_flight) as threads:
        done = sum(threads.map(work, range(backend.max_in_flight)))
    return done * size / (perf_counter() - began)


def best_sizes(backend: Backend, seconds: float) -> list[int]:
    """Return the batch sizes that may give the most positions per second. seconds: for each size."""
    backend_rate(backend, 8, 2 * seconds)
    rates: dict[int, float] = {}
    best, since = 0.0, 0
    for size in LADDER:
        if size > backend.max_batch or since == 3:
            break
        # Twice, because a disturbance seldom affects both measurements.
        rates[size] = max(backend_rate(backend, size, seconds / 2) for _ in range(2))
        since = 0 if rates[size] > 1.02 * best else since + 1
        best = max(best, rates[size])
    return [size for size, rate in rates.items() if rate >= NEAR * best]


def best_rate(backend: Backend, sizes: Sequence[int], seconds: float) -> float:
    """Return positions per second with the fastest of these batch sizes."""
    return max(backend_rate(backend, size, seconds / len(sizes)) for size in sizes)
