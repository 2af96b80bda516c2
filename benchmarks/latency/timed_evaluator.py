# SPDX-License-Identifier: GPL-3.0-or-later
"""An evaluator for benchmarks: this checkout's service on a device with a fixed time per batch.

    python -m benchmarks.latency.timed_evaluator --device-ms 0.25 [--each-us 0]
        [--address ADDRESS] [--interpreted]

It talks to its parent like `python -m evaluator serve --embedded`.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Sequence
from unittest.mock import patch

import numpy as np

from benchmarks.latency.timed_lease import TimedBufferLease
from evaluator import backends
from evaluator.backends.common.base import Backend
from evaluator.backends.common.buffer_lease import BufferLease
from evaluator.cli import main as evaluator
from evaluator.network.spec import NetworkSpec
from protocol.batch import MAX_LEGAL_MOVES, EvaluationBatch, PositionBatch

NEEDS_NETWORK = False

_device_s = _each_s = 0.0
_lends = True


def unavailable() -> str | None:
    return None


def open(network: NetworkSpec | None, *, threads: int | None = None) -> Backend:
    return TimedBackend(_device_s, _each_s)


class TimedBackend(Backend):
    """Returns random results and sleeps for the time of a batch. Computes batches in sequence, like a GPU."""

    name = "timed"
    device = "a clock"
    max_batch = 1024
    max_in_flight = 2
    finite = True

    def __init__(self, seconds: float, each: float) -> None:
        """seconds: per batch. each: per position in it."""
        self._seconds, self._each = seconds, each
        self._free_at = 0.0
        self._lock = threading.Lock()
        random = np.random.default_rng(1)
        self._noise = random.uniform(-2, 2, 2 * self.max_batch * MAX_LEGAL_MOVES).astype(np.float32)
        self._wdl = random.dirichlet((1, 1, 1), 2 * self.max_batch).astype(np.float32)
        self._at = 0
        self._batches = TimedBufferLease(self._answer, self.max_batch)

    def evaluate(self, batch: PositionBatch) -> EvaluationBatch:
        return self.evaluate_parts([batch])

    def evaluate_parts(self, parts: Sequence[PositionBatch]) -> EvaluationBatch:
        """Return different results for each batch, at almost no cost."""
        evaluation, ready_s = self._answer(sum(map(len, parts)), sum(len(part.moves) for part in parts))
        time.sleep(max(0.0, ready_s - time.perf_counter()))
        return evaluation

    def _answer(self, count: int, moves: int) -> tuple[EvaluationBatch, float]:
        """Return the results of a batch that starts now, and their time, in seconds of perf_counter."""
        self._at = (self._at + 1) % self.max_batch
        evaluation = EvaluationBatch(
            self._noise[self._at : self._at + moves],
            self._wdl[self._at : self._at + count],
            self._noise[:count],
        )
        with self._lock:
            self._free_at = max(time.perf_counter(), self._free_at) + self._seconds + self._each * count
            return evaluation, self._free_at

    def lease_buffers(self) -> BufferLease | None:
        return self._batches if _lends else None


def main() -> int:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device-ms", type=float, default=0.25, help="time of a batch (default 0.25)")
    parser.add_argument("--each-us", type=float, default=0.0, help="of each position in it (default 0)")
    parser.add_argument("--address", help="where to listen; by default a private address")
    parser.add_argument("--interpreted", action="store_true", help="without the fast path")
    arguments = parser.parse_args()
    from benchmarks.latency import timed_evaluator

    timed_evaluator._device_s = arguments.device_ms / 1000
    timed_evaluator._each_s = arguments.each_us / 1e6
    timed_evaluator._lends = not arguments.interpreted
    flags = ["--embedded", "--backend", "timed", "--no-latency-cache", "--log-level", "warning"]
    flags += ["--address", arguments.address] if arguments.address else []
    with patch.dict(backends._BUILT_IN, timed="benchmarks.latency.timed_evaluator"):
        return evaluator(["serve", *flags])


if __name__ == "__main__":
    raise SystemExit(main())
