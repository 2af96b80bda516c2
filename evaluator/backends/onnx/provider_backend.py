# SPDX-License-Identifier: GPL-3.0-or-later
"""The `onnx` backend on a device of one of ONNX Runtime's providers."""

from __future__ import annotations

from typing import Any

import numpy as np

from evaluator.backends.common import crashes
from evaluator.backends.common.agreement import FP16, FP32, agreement, logits_limit
from evaluator.backends.common.base import Backend, BackendError, NotFiniteError
from evaluator.backends.common.batches import evaluation
from evaluator.backends.common.crashes import OpeningAttempt, Phase
from evaluator.backends.common.progress import announce
from evaluator.backends.common.sample import sample_batch
from evaluator.backends.common.threads import default_threads
from evaluator.backends.onnx.calibration import feed_of
from evaluator.backends.onnx.model import build_model, outputs_of, with_batch
from evaluator.backends.onnx.providers import ProviderDevice, open_on
from evaluator.backends.onnx.runtime import onnxruntime as ort
from evaluator.backends.onnx.sessions import open_session
from evaluator.network.spec import NetworkSpec
from protocol.batch import EvaluationBatch, PositionBatch

BUCKETS = (1, 8, 32, 64, 128, 256)
"""Default batch sizes. Each has a session with its own copy of the weights."""

CHECKED_POSITIONS = 32


class ProviderBackend(Backend):
    """One session for each batch size, since providers compile for fixed shapes. Batches are padded to the
    next size.

    Every size is compared with the CPU in float32 before use. A crash of the provider's library is recorded,
    and excludes the device at the next start (gpu/driver/crashes.py).
    """

    name = "onnx"

    def __init__(
        self,
        network: NetworkSpec,
        device: ProviderDevice,
        *,
        half: bool,
        buckets: tuple[int, ...] = BUCKETS,
        threads: int = 0,
    ) -> None:
        """half: compute in fp16. threads: of the CPU. Raises BackendError, also for wrong values."""
        if crash := crashes.excluded(device.subject):
            raise BackendError(f"{device} is not used: {crash}; {crashes.RETRY}")
        self.on_host = device.kind == "CPU"
        threads = threads or default_threads()
        if self.on_host:
            self.threads = threads
        self.buckets, self.max_batch = buckets, buckets[-1]
        self.tolerance = FP16 if half else FP32
        self.device = f"{device}, {'fp16' if half else 'fp32'} ({device.source})"
        self._outputs = outputs_of(network)
        self._sessions: dict[int, ort.InferenceSession] = {}
        attempt = OpeningAttempt(device.subject, Phase.OPENING)
        try:
            model = build_model(network, packed=True, half=half)
            for size in buckets:
                announce(f"{device}: opening batch size {size}")
                self._sessions[size] = open_on(device, with_batch(model, size), half=half, threads=threads)
            self._check(network, threads)
        except BaseException:
            self._sessions.clear()
            attempt.end()
            raise
        attempt.enter(Phase.USING)
        self._attempt = attempt

    def _check(self, network: NetworkSpec, threads: int) -> None:
        """Compare every size with the CPU in float32 on real positions. Raises BackendError."""
        sample = sample_batch(network.input_format).slice(0, CHECKED_POSITIONS)
        exact = open_session(build_model(network, packed=True).SerializeToString(), threads)
        outputs = exact.run(self._outputs, feed_of(sample))
        for size in self.buckets:
            batch = PositionBatch.concatenate([sample] * -(-size // len(sample))).slice(0, size)
            tiled = [np.concatenate([each] * -(-size // len(sample)))[:size] for each in outputs]
            found = agreement(self.evaluate(batch), evaluation(batch, *tiled), batch, self.tolerance)
            if not found.within(self.tolerance):
                limit = logits_limit(self.tolerance, found.spread)
                raise BackendError(
                    f"{self.device} computes wrong values in batches of {size}: logits are off by up to "
                    f"{found.logits:.2g} (limit {limit:.2g}), W D L by {found.wdl:.2g} (limit "
                    f"{self.tolerance.wdl:g}); precision=fp32 may help"
                )

    def evaluate(self, batch: PositionBatch) -> EvaluationBatch:
        if not self._sessions:
            raise BackendError("the onnx backend is closed")
        if len(batch) > self.max_batch:
            raise BackendError(f"{len(batch)} positions are more than max_batch, {self.max_batch}")
        # A provider may turn NaN into a number: OpenVINO's relu does.
        if not np.isfinite(batch.positions["rule50"]).all():
            raise NotFiniteError(f"{self.device}: a position's rule50 is not finite")
        size = next(size for size in self.buckets if size >= len(batch))
        session = self._sessions[size]
        feed = {name: _padded(values, size) for name, values in feed_of(batch).items()}
        try:
            outputs = session.run(self._outputs, feed)
        except Exception as error:  # onnxruntime's exceptions have no common base
            raise BackendError(f"{self.device}: onnxruntime failed: {error}") from error
        return evaluation(batch, *(each[: len(batch)] for each in outputs))

    def close(self) -> None:
        if self._sessions:
            self._sessions.clear()
            self._attempt.end()


def _padded(values: Any, size: int) -> Any:
    """Return an input of a batch with zeros up to a size."""
    if len(values) == size:
        return values
    padded = np.zeros((size, *values.shape[1:]), values.dtype)
    padded[: len(values)] = values
    return padded
