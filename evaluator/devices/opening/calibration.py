# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures the latency curve of a backend at start within a time budget, and caches it.

The cache is in the platform's cache folder. Its key has all that the curve depends on: device, backend and
its library's version, network, threads and the version of this code. A damaged cache counts as missing.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import logging
import math
import os
import sys
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from evaluator.backends.common.base import Backend
from evaluator.backends.common.caching import cached_file, keep
from evaluator.backends.common.device_lease import DeviceLease, exclusive_lease
from evaluator.backends.common.probe import probe_batch
from evaluator.devices.machine import MAX_OTHERS_SHARE, others_share, reading
from evaluator.scheduling.growth import Growth, is_flat
from evaluator.scheduling.latency import LAUNCH_MS, LAUNCH_ON_CPU_MS, LatencyModel, steps_to
from evaluator.settings import DeviceSettings
from protocol.batch import PositionBatch
from protocol.common.closing import Closing

log = logging.getLogger("evaluator.calibration")

CODE_VERSION = 4
"""Increase it if the meaning of a cached curve or the speed of the measured code changes."""

DISTURBED = 0.7
"""A throughput below this fraction of the best so far is measured once more. Times agree within it."""

PATIENCE = 4.0
"""Limit of a measurement with waits for processors, as a multiple of its budget."""

MIN_OBSERVATIONS = 200
"""Number of observed batches from which a corrected curve is cached again at the end."""

_LIBRARIES = ("numpy", "onnxruntime")


def time_batches(
    backend: Backend,
    sizes: Sequence[int],
    budget_s: float,
    *,
    repeats: int = 3,
    stop_when_flat: bool = True,
    clock: Callable[[], float] = time.perf_counter,
    lease: DeviceLease = exclusive_lease,
) -> dict[int, float]:
    """Return the milliseconds of one batch for each size, as far as the budget allows (the first size
    always).

    Each size runs once to warm up and then `repeats` times, or fewer if the budget is short. The shortest
    time counts, because disturbances only lengthen it. A size runs up to twice as often until two times
    agree. stop_when_flat: skip larger sizes once the throughput no longer grows. clock: seconds. lease:
    entered for each batch.

    The budget counts each run as long as the shortest of its size: waits for the device or for a processor
    are no part of it, up to PATIENCE times the budget. Otherwise a curve measured on a busy machine would end
    at a few positions.
    """
    at_once = backend.max_in_flight if backend.side_by_side else 1
    used_ms = 0.0
    points: dict[int, float] = {}
    whole = probe_batch(min(max(sizes), backend.max_batch))
    best_rate = 0.0
    previous: float | None = None

    def left_ms(shortest: float, runs: int) -> float:
        """Return what is left of the budget. shortest: time of the current size, in `runs` runs."""
        used = max(used_ms + at_once * shortest * runs, 1000 * timer.spent_s / PATIENCE)
        return 1000 * budget_s - used

    with BatchTimer(backend, clock, lease) as timer:
        for size in sizes:
            if size > backend.max_batch:
                break
            if previous is not None and left_ms(0, 0) < 2 * at_once * previous * size / max(points):
                break
            batch = whole.slice(0, size)
            first = timer.run_ms(batch)
            runs, best, second = 1, math.inf, math.inf  # the shortest times after the first
            while runs <= repeats or (
                runs <= 2 * repeats and (size / best < DISTURBED * best_rate or second * DISTURBED > best)
            ):
                shortest = min(first, best)
                if runs > 1 and left_ms(shortest, runs) < at_once * shortest:
                    break
                best, second = sorted((best, second, timer.run_ms(batch)))[:2]
                runs += 1
            used_ms += at_once * min(first, best) * runs
            previous = points[size] = max(1e-3, best if runs > 1 else first)
            best_rate = max(best_rate, size / previous)
            if stop_when_flat and is_flat(points):
                break
    return points


class BatchTimer(Closing):
    """Context manager that times single batches of a backend.

    clock: seconds. lease: entered for each batch. spent_s: total seconds of the batches.
    """

    def __init__(
        self,
        backend: Backend,
        clock: Callable[[], float] = time.perf_counter,
        lease: DeviceLease = exclusive_lease,
    ) -> None:
        self._backend = backend
        self._clock = clock
        self._lease = lease
        self.spent_s = 0.0
        self._at_once = backend.max_in_flight if backend.side_by_side else 1
        self._threads = ThreadPoolExecutor(self._at_once)

    def run_ms(self, batch: PositionBatch) -> float:
        """Return the milliseconds of one batch.

        If batches run side by side, as many run at once as the backend supports. Each gets its share of the
        time: of the processor's where that is counted finely, because other programs do not lengthen it.
        """
        backend = self._backend
        if not backend.side_by_side:
            with self._lease():
                begin = self._clock()
                backend.evaluate(batch)
                seconds = self._clock() - begin
            self.spent_s += seconds
            return seconds * 1000
        begin, processor = self._clock(), time.process_time()
        list(self._threads.map(backend.evaluate, [batch] * self._at_once))
        seconds = self._clock() - begin
        self.spent_s += seconds
        if sys.platform != "win32":  # Windows counts processor time in steps of 15.6 ms.
            seconds = (time.process_time() - processor) / backend.threads
        return max(1e-3, seconds * 1000 / self._at_once)

    def close(self) -> None:
        self._threads.shutdown()


def latency_model(
    backend: Backend,
    content_hash: str,
    settings: DeviceSettings,
    *,
    clock: Callable[[], float] = time.perf_counter,
    lease: DeviceLease = exclusive_lease,
    equal: LatencyModel | None = None,
    factor: float | None = None,
) -> tuple[LatencyModel, Callable[[], None]]:
    """Return the latency model of an opened backend, and a function that caches what it has learned.

    The curve comes from the cache or is measured now, and grows in use (scheduling/growth.py). A curve
    measured on a busy machine is provisional, and cached only after it was measured again. Later times are
    cached only if they are shorter: longer ones depend on what else ran. clock: seconds. lease: as in
    time_batches. equal: model whose curve is used. factor: for its times, which are then measured in use.
    """
    caches = settings.latency_cache and not backend.provisional
    path = _cache_path(backend, content_hash, settings.threads) if caches else None
    same = None if equal is None else equal.growth
    points = _read(path) if path is not None and (same is None or factor is not None) else None
    # A size between two buckets takes as long as the larger one, and would look like a step without gain.
    steps = backend.buckets or steps_to(backend.max_batch)
    doubted: Collection[int] = ()
    if same is not None and not points:
        points = {size: ms * (factor or 1.0) for size, ms in same.points.items()}
        doubted = same.doubted if factor is None else points
    if points is not None:
        run = backend.buckets or range(1, backend.max_batch + 1)
        points = {size: ms for size, ms in points.items() if size in run}
    if not points:
        before = reading()
        points = time_batches(backend, steps, settings.calibration_s, clock=clock, lease=lease)
        if others_share(before, reading()) > MAX_OTHERS_SHARE:
            doubted = points
            log.info("other programs keep the machine busy: the latency curve will be measured again")
        elif path is not None:
            _write(path, points)
    growth = Growth(steps, points, doubted)
    launch_ms = LAUNCH_ON_CPU_MS if backend.side_by_side else LAUNCH_MS
    model = LatencyModel(points, max(points), backend.buckets, launch_ms, growth)
    first = dict(growth.points)

    def save() -> None:
        learnt = model.observations >= MIN_OBSERVATIONS or growth.points != first
        if path is not None and learnt and not growth.doubted:
            _write(path, model.shortest())

    return model, save


def _cache_path(backend: Backend, content_hash: str, threads: int) -> Path | None:
    versions = []
    for library in _LIBRARIES:
        try:
            versions.append(f"{library} {importlib.metadata.version(library)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    key = [
        CODE_VERSION,
        backend.name,
        backend.device,
        content_hash,
        threads or None,
        os.cpu_count(),
        versions,
    ]
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:24]
    return cached_file("latency", f"{digest}.json")


def _read(path: Path) -> dict[int, float] | None:
    try:
        raw = json.loads(path.read_text("utf-8"))
        points = {int(size): float(ms) for size, ms in raw["curve"]}
    except (OSError, ValueError, TypeError, KeyError):
        return None
    if not points or any(size < 1 or not (0 < ms < math.inf) for size, ms in points.items()):
        return None
    return points


def _write(path: Path, points: dict[int, float]) -> None:
    keep(path, json.dumps({"curve": sorted(points.items())}).encode())
