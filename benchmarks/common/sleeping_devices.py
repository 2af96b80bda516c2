# SPDX-License-Identifier: GPL-3.0-or-later
"""A backend that sleeps as long as a device would compute; installable as a plug-in.

--backend sleeping:base=1.3,each=0.0316        milliseconds per batch and per position
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np

from evaluator.backends.common.base import Backend
from evaluator.network.spec import NetworkSpec
from evaluator.settings import DeviceSettings
from protocol.batch import EvaluationBatch, PositionBatch

NEEDS_NETWORK = False


def unavailable() -> str | None:
    """Return None: it runs anywhere."""
    return None


class Sleeping(Backend):
    """Accepts two batches, computed in sequence, like a GPU whose uploads overlap its computation."""

    name = "sleeping"
    max_batch = 1024
    max_in_flight = 2
    finite = True

    def __init__(self, base: float, each: float) -> None:
        self.device = f"sleeping, {base:g} ms and {each:g} ms a position"
        self._base_ms, self._each_ms = base, each
        self._free_s = 0.0
        self._lock = threading.Lock()

    def evaluate(self, batch: PositionBatch) -> EvaluationBatch:
        count = len(batch.positions)
        with self._lock:
            begin = max(time.perf_counter(), self._free_s)
            self._free_s = begin + (self._base_ms + self._each_ms * count) / 1000
            end = self._free_s
        time.sleep(max(0.0, end - time.perf_counter()))
        wdl = np.full((count, 3), 1 / 3, np.float32)
        return EvaluationBatch(np.zeros(len(batch.moves), np.float32), wdl, np.zeros(count, np.float32))


def open(
    network: NetworkSpec | None, settings: DeviceSettings, *, base: float = 1.3, each: float = 0.0316
) -> Backend:
    """Return a device of that speed."""
    return Sleeping(base, each)


def install(folder: Path) -> None:
    """Install the backend for interpreters with the folder in PYTHONPATH."""
    metadata = folder / "wavefront_sleeping-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: wavefront-sleeping\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[wavefront.backends]\nsleeping = sleeping_devices\n")
    (folder / "sleeping_devices.py").write_text(Path(__file__).read_text("utf-8"), "utf-8")
