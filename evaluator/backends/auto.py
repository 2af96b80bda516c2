# SPDX-License-Identifier: GPL-3.0-or-later
"""`auto`: measures which backend runs the network correctly and fastest on this machine."""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

from evaluator.backends import available_backends, needs_network, open_backend
from evaluator.backends.common.base import Backend, BackendError
from evaluator.backends.common.probe import probe_batch
from evaluator.backends.common.progress import warn
from evaluator.network.spec import NetworkSpec
from evaluator.settings import DeviceSettings
from protocol.batch import PositionBatch

_log = logging.getLogger(__name__)

_PREFERRED = "gpu"
"""It checks itself when it opens, and no CPU is nearly as fast as a GPU that is not small."""
_NEVER = {"reference"}  # always the slowest
_BATCH = 32
_MEASURE_SECONDS = 0.3
_TOLERANCE = 0.1  # RMS over the spread of the logits: fp16 and int8 pass, a wrong kernel does not


def open_fastest(
    network: NetworkSpec | None,
    settings: DeviceSettings,
    *,
    int8: bool | None = None,
    tuning: str = "",
    **options: Any,
) -> Backend:
    """Return the GPU backend if it opens on a GPU that is not small. Otherwise open every candidate, check
    each against the reference, and return the fastest.

    If the GPU backend does not open, the GPUs of ONNX Runtime's providers are candidates, too. A single
    candidate is not measured. int8: True adds quantised onnx to the candidates; None takes the onnx
    backend's choice. tuning: replaces that of the settings. options: passed to all. Raises
    BackendError with every candidate's reason if none opens.
    """
    if network is None:
        raise BackendError("backend auto needs a network; ask for random or uniform to run without one")
    settings = replace(settings, tuning=tuning or settings.tuning)
    reasons: list[str] = []
    opened: list[Backend] = []
    for name, reason in available_backends().items():
        if name in _NEVER or (reason is None and not needs_network(name)):
            continue
        if reason is not None:
            reasons.append(f"{name}: {reason}")
            continue
        for variant in _variants(name, int8=int8, providers=not any(each.name == "gpu" for each in opened)):
            try:
                opened.append(open_backend(name, network, settings, **options, **variant))
            except BackendError as error:
                reasons.append(f"{name}: {error}")
                if "provider" in variant:
                    warn(f"provider {variant['provider']} is not used: {error}")
        if name == _PREFERRED and opened and not opened[0].small:
            return opened[0]
    if not opened:
        raise BackendError("no backend can run this network; " + "; ".join(reasons))
    for reason in reasons:
        _log.info("backend auto skips %s", reason)
    chosen = opened[0] if len(opened) == 1 else _fastest(opened, network)
    if chosen.name != _PREFERRED:
        from evaluator.backends.gpu.driver.discovery import found_devices

        for notice in found_devices().notices:
            warn(f"{notice}; {chosen.name} on {chosen.device} is used instead")
    return chosen


def _variants(name: str, *, int8: bool | None, providers: bool) -> list[dict[str, Any]]:
    """Return the options to try a backend with. providers: include ONNX Runtime's on GPUs."""
    variants: list[dict[str, Any]] = [{}]
    if name == "onnx":
        if int8 is not None:
            variants = [{"int8": False}, {"int8": True}][: 1 + int8]
        if providers:
            from evaluator.backends.onnx.providers import for_auto, found_providers

            for provider, problem in found_providers().problems.items():
                warn(f"provider {provider} is not used: {problem}")
            variants += [{"provider": each.provider.name} for each in for_auto()]
    return variants


def _fastest(opened: list[Backend], network: NetworkSpec) -> Backend:
    from evaluator.backends.reference.backend import ReferenceBackend

    batch = probe_batch(_BATCH)
    expected = ReferenceBackend(network).evaluate(batch).logits
    speeds: list[tuple[float, Backend]] = []
    for backend in opened:
        try:
            difference = backend.evaluate(batch).logits - expected
            error = float(np.sqrt(np.square(difference).mean()) / expected.std())
            if not error <= _TOLERANCE:
                raise BackendError(f"its logits are off by {error:.1%} of their spread")
            speeds.append((_positions_per_second(backend, batch), backend))
        except BackendError as problem:
            _log.warning("backend auto drops %s: %s", backend.name, problem)
            backend.close()
    if not speeds:
        raise BackendError("every backend that opened failed its check; see the log")
    speeds.sort(key=lambda pair: -pair[0])
    for speed, backend in speeds:
        _log.info("%s on %s: %.0f positions/s at batch %d", backend.name, backend.device, speed, _BATCH)
    for _, slower in speeds[1:]:
        slower.close()
    return speeds[0][1]


def _positions_per_second(backend: Backend, batch: PositionBatch) -> float:
    """Return the best of as many runs as fit into the time limit, of concurrent batches if it has some."""
    at_once = backend.max_in_flight if backend.side_by_side else 1
    best = float("inf")
    end = time.perf_counter() + _MEASURE_SECONDS
    with ThreadPoolExecutor(at_once) as threads:
        while (start := time.perf_counter()) < end:
            list(threads.map(backend.evaluate, [batch] * at_once))
            best = min(best, time.perf_counter() - start)
    return at_once * len(batch) / best
