"""Measuring the latency curve of a backend at start, within a time budget, and keeping it in a cache.

The cache lies in the platform's cache folder, keyed by everything the curve depends on: device, backend and
its library's version, network, threads and the version of this code. A damaged cache counts as missing.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import logging
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import platformdirs
import psutil

from evaluator.backends.base import Backend
from evaluator.backends.probe import probe_batch
from evaluator.caching import kept
from evaluator.scheduling.latency import LADDER, LAUNCH_MS, LAUNCH_ON_CPU_MS, LatencyModel
from evaluator.slices import Slice, unshared
from protocol.batch import PositionBatch

log = logging.getLogger("evaluator.calibration")

CODE_VERSION = 4
"""Raise when the meaning of a cached curve, or the speed of our own code in it, changes."""

FLAT_STEPS = 3
"""Measuring ends when the throughput has not grown for this many steps of the ladder."""

BEYOND_MEASURED = 2
"""Batches are run up to this many times the largest that there was time to measure."""

DISTURBED = 0.7
"""A throughput below this fraction of the best so far is measured once more."""

PATIENCE = 4.0
"""Measuring the processor's time may take so many times its budget on the clock."""

MAX_OTHERS_SHARE = 0.25
"""A curve that was measured while other programs took a larger share of the machine is not kept."""

MIN_OBSERVATIONS = 200
"""A curve is cached again at the end if it was corrected by at least this many batches."""

_LIBRARIES = ("numpy", "onnxruntime")


def time_batches(
    backend: Backend,
    sizes: Sequence[int],
    budget_s: float,
    *,
    repeats: int = 3,
    stop_when_flat: bool = True,
    clock: Callable[[], float] = time.perf_counter,
    slices: Slice = unshared,
) -> dict[int, float]:
    """Milliseconds of one batch of each size, as far as the budget goes (the first size always).

    Where batches are computed side by side, as many run at once as the backend takes, and each gets its
    share of the processor's time, which other programs do not lengthen. Each size is run once to warm up
    and then `repeats` times, fewer when the budget gets short, and the best run counts: whatever else the
    machine did can only have made it slower. With stop_when_flat, larger sizes are left out once the
    throughput has stopped growing. clock: seconds. slices: of the device; a batch is run in each.
    """
    side_by_side = backend.side_by_side
    at_once = backend.max_in_flight if side_by_side else 1
    began, began_processor = clock(), time.process_time()
    points: dict[int, float] = {}
    whole = probe_batch(min(max(sizes), backend.max_batch))
    best_rate = 0.0
    previous: float | None = None

    def left_s() -> float:
        passed = clock() - began
        if side_by_side:
            own = (time.process_time() - began_processor) / backend.threads
            passed = max(own, passed / PATIENCE)
        return budget_s - passed

    with ThreadPoolExecutor(at_once) as threads:

        def run_ms(batch: PositionBatch) -> float:
            if not side_by_side:
                with slices():
                    begin = clock()
                    backend.evaluate(batch)
                    return (clock() - begin) * 1000
            begin = time.process_time()
            list(threads.map(backend.evaluate, [batch] * at_once))
            return max(1e-3, (time.process_time() - begin) * 1000 / backend.threads / at_once)

        for size in sizes:
            if size > backend.max_batch:
                break
            if previous is not None and left_s() < 2 * at_once * previous / 1000 * size / max(points):
                break
            batch = whole.slice(0, size)
            runs: list[float] = []
            planned = repeats + 1
            while len(runs) < planned:
                runs.append(run_ms(batch))
                if len(runs) > 1 and left_s() < at_once * runs[-1] / 1000:
                    break
                # A larger batch that is much slower per position was disturbed: look again.
                if len(runs) == repeats + 1 and size / min(runs[1:]) < DISTURBED * best_rate:
                    planned = 2 * repeats + 1
            runs = runs[1:] or runs
            previous = points[size] = max(1e-3, min(runs))
            best_rate = max(best_rate, size / previous)
            if stop_when_flat and _is_flat(points):
                break
    return points


def latency_model(
    backend: Backend,
    content_hash: str,
    threads: int | None,
    *,
    budget_s: float,
    use_cache: bool,
    clock: Callable[[], float] = time.perf_counter,
    slices: Slice = unshared,
) -> tuple[LatencyModel, Callable[[], None]]:
    """The latency model of an opened backend, from the cache or measured now, and what to call at the end to
    cache what it has learnt: times shorter than measured. Longer ones say more about what else ran.

    clock: seconds, to measure by. slices: as of time_batches.
    """
    path = _cache_path(backend, content_hash, threads) if use_cache else None
    points = _read(path) if path is not None else None
    if points is None:
        # A size between the buckets takes as long as the next one, and would look like a step without gain.
        sizes = backend.buckets or [size for size in LADDER if size <= backend.max_batch]
        before = _processor_seconds()
        points = time_batches(backend, sizes, budget_s, clock=clock, slices=slices)
        if path is not None and others_share(before, _processor_seconds()) > MAX_OTHERS_SHARE:
            log.info("other programs keep the machine busy: the latency curve holds for this run only")
            path = None
        if path is not None:
            _write(path, points)
    launch_ms = LAUNCH_ON_CPU_MS if backend.side_by_side else LAUNCH_MS
    model = LatencyModel(points, _largest_trusted(points, backend), backend.buckets, launch_ms)

    def save() -> None:
        if path is not None and model.observations >= MIN_OBSERVATIONS:
            _write(path, model.shortest())

    return model, save


def _processor_seconds() -> tuple[float, float, float]:
    """Seconds on the clock, and of the processors: of the whole machine, of this process."""
    machine = psutil.cpu_times()
    busy = sum(machine) - machine.idle - getattr(machine, "iowait", 0.0)
    return time.perf_counter(), busy, time.process_time()


def others_share(before: tuple[float, float, float], after: tuple[float, float, float]) -> float:
    """The share of the machine that other processes took between two readings, 0 to 1; 0 where that cannot be
    told, because the machine counts in hundredths of a second."""
    passed, busy, own = (later - earlier for earlier, later in zip(before, after, strict=True))
    return max(0.0, busy - own) / (passed * (os.cpu_count() or 1)) if passed >= 0.1 else 0.0


def _is_flat(points: Mapping[int, float]) -> bool:
    """Whether the throughput has not grown over the last FLAT_STEPS sizes."""
    best_rate, flat = 0.0, 0
    for size, ms in sorted(points.items()):
        flat = 0 if size / ms > 1.02 * best_rate else flat + 1
        best_rate = max(best_rate, size / ms)
    return flat >= FLAT_STEPS


def _largest_trusted(points: Mapping[int, float], backend: Backend) -> int:
    """The largest batch to run: nobody knows how the time grows far beyond what was measured, and where the
    throughput had stopped growing there is nothing to gain. (Caches overflow: a CPU that ran 64 positions at
    once took three times as long for each of 128.)"""
    most = min(backend.max_batch, max(points) * (1 if _is_flat(points) else BEYOND_MEASURED))
    return max((bucket for bucket in backend.buckets if bucket <= most), default=most)


def _cache_path(backend: Backend, content_hash: str, threads: int | None) -> Path:
    versions = []
    for library in _LIBRARIES:
        try:
            versions.append(f"{library} {importlib.metadata.version(library)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    key = [CODE_VERSION, backend.name, backend.device, content_hash, threads, os.cpu_count(), versions]
    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:24]
    return Path(platformdirs.user_cache_dir("wavefront", False)) / "latency" / f"{digest}.json"


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
    data = json.dumps({"curve": sorted(points.items())}).encode()
    kept(path, data, log, "the latency curve", "measures it")
