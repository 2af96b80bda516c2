# SPDX-License-Identifier: GPL-3.0-or-later
"""A backend that answers like `random`, takes a device's time, and sometimes fails or hangs; a plug-in.

--backend faltering:base=4,each=0.4,fails=60,hangs=150,stays=8

base, each: milliseconds per batch and per position. fails: period in seconds of failures, in which every
batch fails for two seconds. hangs: period of batches that hang for `stays` seconds. 0: never.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

from evaluator.backends.common.base import Backend, BackendError
from evaluator.backends.reference.random import random_evaluation
from evaluator.network.spec import NetworkSpec
from evaluator.settings import DeviceSettings
from protocol.batch import EvaluationBatch, PositionBatch

NEEDS_NETWORK = False

FAILING_S = 2.0

_BEGAN_S = time.perf_counter()
_hung: set[int] = set()
"""Periods in which a batch has hung, for all networks on the device."""


def unavailable() -> str | None:
    """Return None: it runs anywhere."""
    return None


class Faltering(Backend):
    """Runs batches in sequence."""

    name = "faltering"
    max_batch = 1024
    max_in_flight = 2
    finite = True

    def __init__(self, base: float, each: float, fails: float, hangs: float, stays: float) -> None:
        self.device = f"faltering, {base:g} ms and {each:g} ms a position"
        self._base_ms, self._each_ms = base, each
        self._fails_s, self._hangs_s, self._stays_s = fails, hangs, stays
        self._free_s = 0.0
        self._lock = threading.Lock()

    def evaluate(self, batch: PositionBatch) -> EvaluationBatch:
        with self._lock:
            begin = max(time.perf_counter(), self._free_s)
            self._free_s = begin + (self._base_ms + self._each_ms * len(batch.positions)) / 1000
            end = self._free_s
            stays = self._stays_s if self._hangs(begin) else 0.0
        evaluation = random_evaluation(batch)
        time.sleep(max(0.0, end - time.perf_counter()) + stays)
        if self._fails_s and (begin - _BEGAN_S) % self._fails_s > self._fails_s - FAILING_S:
            raise BackendError("the device is in one of its bad times")
        return evaluation

    def _hangs(self, now_s: float) -> bool:
        period = int((now_s - _BEGAN_S) / self._hangs_s) if self._hangs_s else 0
        if not period or period in _hung:
            return False
        _hung.add(period)
        return True


def open(
    network: NetworkSpec | None,
    settings: DeviceSettings,
    *,
    base: float = 4.0,
    each: float = 0.4,
    fails: float = 0.0,
    hangs: float = 0.0,
    stays: float = 8.0,
) -> Backend:
    """Return a device of that speed and reliability."""
    return Faltering(base, each, fails, hangs, stays)


def install(folder: Path) -> None:
    """Install the backend for interpreters with the folder in PYTHONPATH."""
    metadata = folder / "wavefront_faltering-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: wavefront-faltering\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[wavefront.backends]\nfaltering = faltering_devices\n")
    (folder / "faltering_devices.py").write_text(Path(__file__).read_text("utf-8"), "utf-8")
