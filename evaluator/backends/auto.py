"""`auto`: the fastest backend that runs the network correctly on this machine, found by measuring."""

from __future__ import annotations

import logging
import time
from typing import Any

import numpy as np

from evaluator.backends import available_backends, needs_network, open_backend
from evaluator.backends.base import Backend, BackendError
from evaluator.network.spec import NetworkSpec
from protocol.batch import PLANES, POSITION_DTYPE, PositionBatch

_log = logging.getLogger(__name__)

_NEVER = {"reference"}  # the yardstick is always slowest
_BATCH = 32
_MEASURE_SECONDS = 0.3
_TOLERANCE = 0.05  # of a logit: fp16 passes, a wrong kernel does not


def open_fastest(network: NetworkSpec | None, *, threads: int | None = None, **options: Any) -> Backend:
    """Open every candidate, check it against the first one, measure, keep the fastest.

    With one candidate nothing is measured. options go to the candidates that know them. Raises BackendError
    with every candidate's reason if none opens.
    """
    if network is None:
        raise BackendError("backend auto needs a network; ask for random or uniform to run without one")
    reasons: list[str] = []
    opened: list[Backend] = []
    for name, reason in available_backends().items():
        if name in _NEVER or (reason is None and not needs_network(name)):
            continue
        if reason is not None:
            reasons.append(f"{name}: {reason}")
            continue
        try:
            opened.append(open_backend(name, network, threads=threads, **options))
        except BackendError as error:
            reasons.append(f"{name}: {error}")
    if not opened:
        raise BackendError("no backend can run this network; " + "; ".join(reasons))
    for reason in reasons:
        _log.info("backend auto passes over %s", reason)
    return opened[0] if len(opened) == 1 else _fastest(opened, network)


def _fastest(opened: list[Backend], network: NetworkSpec) -> Backend:
    from evaluator.backends.reference import ReferenceBackend

    batch = probe_batch(_BATCH)
    expected = ReferenceBackend(network).evaluate(batch).logits
    speeds: list[tuple[float, Backend]] = []
    for backend in opened:
        try:
            error = float(np.abs(backend.evaluate(batch).logits - expected).max())
            if not error <= _TOLERANCE:
                raise BackendError(f"its logits are off by {error:.2g}")
            speeds.append((_positions_per_second(backend, batch), backend))
        except BackendError as problem:
            _log.warning("backend auto drops %s: %s", backend.name, problem)
            backend.close()
    if not speeds:
        raise BackendError("every backend that opened failed its check; see the log")
    speeds.sort(key=lambda pair: -pair[0])
    for speed, backend in speeds:
        _log.info("backend %s: %.0f positions/s at batch %d", backend.name, speed, _BATCH)
    for _, slower in speeds[1:]:
        slower.close()
    return speeds[0][1]


def _positions_per_second(backend: Backend, batch: PositionBatch) -> float:
    """The best of as many runs as fit into the time allowed."""
    best = float("inf")
    end = time.perf_counter() + _MEASURE_SECONDS
    while (start := time.perf_counter()) < end:
        backend.evaluate(batch)
        best = min(best, time.perf_counter() - start)
    return len(batch) / best


def probe_batch(count: int, seed: int = 0) -> PositionBatch:
    """Made-up positions of about the density of real ones, each with the same 35 moves."""
    rng = np.random.default_rng(seed)
    positions = np.zeros(count, POSITION_DTYPE)
    sparse = rng.integers(0, 2**64, (3, count, PLANES), dtype=np.uint64)
    positions["planes"] = sparse[0] & sparse[1] & sparse[2]
    positions["planes"][:, 104:] = 0
    positions["planes"][:, [109, 111]] = 2**64 - 1
    positions["rule50"] = rng.integers(0, 50, count)
    moves = np.sort(rng.choice(1858, 35, replace=False)).astype(np.uint16)
    offsets = np.arange(count + 1, dtype=np.uint32) * np.uint32(len(moves))
    return PositionBatch(positions, offsets, np.tile(moves, count))
