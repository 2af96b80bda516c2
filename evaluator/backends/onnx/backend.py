# SPDX-License-Identifier: GPL-3.0-or-later
"""The `onnx` backend: onnxruntime sessions on the CPU, or on a device of another provider
(provider_backend.py)."""

from __future__ import annotations

import logging
import os
import platform
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import numpy as np

from evaluator.backends.common.agreement import Tolerance
from evaluator.backends.common.base import Backend, BackendError
from evaluator.backends.common.batches import batch_sizes, evaluation
from evaluator.backends.common.child import ChildEnded, run_in_child
from evaluator.backends.common.sample import sample_batch
from evaluator.backends.common.threads import default_threads
from evaluator.backends.onnx.calibration import calibrated, feed_of, largest_weight
from evaluator.backends.onnx.model import build_model, build_observed_model, outputs_of
from evaluator.backends.onnx.quantisation import LARGEST_WEIGHT, Rounding
from evaluator.backends.onnx.roundings import (
    Known,
    QuantisationError,
    included_roundings,
    keep_roundings,
    known_roundings,
)
from evaluator.backends.onnx.runtime import onnxruntime as ort
from evaluator.backends.onnx.sessions import open_session
from evaluator.network.describe import cost_of
from evaluator.network.spec import AttentionBody, NetworkSpec
from evaluator.settings import DeviceSettings
from protocol.batch import EvaluationBatch, PositionBatch

_log = logging.getLogger(__name__)

NEEDS_NETWORK = True

INT8 = Tolerance(0.3, 0.1, 10.0, logits_of_spread=0.1, best_moves=0.9)
MAX_LOGITS_ERROR = 0.05
MAX_VALUE_ERROR = 0.05

CALIBRATED_POSITIONS = 320
"""Sample positions for measuring ranges; the others measure the error. With 64, one position of a hundred is
so far outside the ranges that its policy error is ten times as large."""

PAIRED_SECONDS = 0.05
"""Time after two concurrent batches in which the next batch is expected to be concurrent, too."""

PAIRED_PARAMETERS = 50_000_000
"""Maximum number of weights for which a second session is opened."""


def unavailable() -> str | None:
    return None


def open(
    network: NetworkSpec,
    settings: DeviceSettings,
    *,
    int8: bool | None = None,
    provider: str = "cpu",
    device: int = 0,
    precision: str = "",
    buckets: str = "",
) -> Backend:
    """Open a network on the CPU, or on a device of another execution provider.

    int8: products in 8 bits, on the CPU only (default: if `prefers_int8`). provider: one of
    `providers.PROVIDERS`, in any case. The other options are for providers except the CPU's. device: index
    as listed by `wavefront-evaluator devices`. precision: fp16 or fp32 (default: fp16 on GPUs). buckets:
    batch sizes as in "1+8+64".
    """
    name = str(provider).lower()
    if name == "cpu":
        if device or precision or buckets:
            raise BackendError("device, precision and buckets need another provider: onnx:provider=openvino")
        if int8 is None:
            int8 = prefers_int8(network)
        elif not isinstance(int8, bool):
            raise BackendError(f"backend onnx: int8 is true or false, not {int8!r}")
        return OnnxBackend(network, threads=settings.threads, int8=int8)
    if int8:
        raise BackendError(f"int8 is for the CPU; open the network without it, or without provider={name}")
    if precision not in ("", "fp16", "fp32"):
        raise BackendError(f"precision {precision!r} is not one of fp16, fp32")
    from evaluator.backends.onnx.provider_backend import BUCKETS, ProviderBackend
    from evaluator.backends.onnx.providers import select

    chosen = select(name, device)
    half = precision == "fp16" if precision else chosen.kind != "CPU"
    sizes = batch_sizes(str(buckets)) or BUCKETS
    return ProviderBackend(network, chosen, half=half, buckets=sizes, threads=settings.threads)


def prefers_int8(network: NetworkSpec) -> bool:
    """Return True if 8 bits are faster here and cost no time at the start.

    They are for the included networks on x86 processors with VNNI: 1.6 to 2.1 times as fast, and as strong at
    equal nodes (docs/reference/backends.md). Others were not measured. Measuring another network's roundings
    takes as long as 450 positions.
    """
    return (
        isinstance(network.body, AttentionBody)
        and platform.machine() in ("x86_64", "AMD64")
        and largest_weight() == LARGEST_WEIGHT
        and included_roundings(network) is not None
    )


def runs_on_gpu(options: Mapping[str, Any]) -> bool:
    """Return True if these options of `open` name a GPU that was found."""
    name = str(options.get("provider", "cpu")).lower()
    if name == "cpu":
        return False
    from evaluator.backends.onnx.providers import select

    try:
        return select(name, options.get("device", 0)).kind == "GPU"
    except BackendError:
        return False  # opening it reports the error


class OnnxBackend(Backend):
    """Two sessions of one network, in float32, or with the encoders' products in 8 bits (int8).

    A single batch runs on all threads. Of two concurrent batches, the second uses a session with one thread
    less, so that each has a thread of its own and they share the rest; with two threads, one each. No batch
    then waits for the slowest thread after every operator, which is expensive if other programs take a core
    at times. Measured with the shipped network and two threads, positions/s single / concurrent: batch 4
    1,100 / 1,480, batch 24 1,450 / 1,640. Large networks do without the second session.

    int8 rounds the inputs of these products by ranges measured on real positions, so a position's result does
    not depend on its batch. They are known (roundings.py), or measured at opening. Then the error against
    float32 is measured on other positions and logged; too large an error raises BackendError. Both give
    `quantisation_error`.
    """

    name = "onnx"
    on_host = True
    max_batch = 1024

    def __init__(self, network: NetworkSpec, *, threads: int = 0, int8: bool = False) -> None:
        self.threads = threads or default_threads()
        precision = "int8" if int8 else "fp32"
        self.device = f"CPU, {self.threads} thread{'s' if self.threads > 1 else ''}, {precision}"
        self.quantisation_error: QuantisationError | None = None
        self._outputs = outputs_of(network)
        if int8 and not isinstance(network.body, AttentionBody):
            raise BackendError("int8 is for networks with an attention body; open this one without it")
        self._lock = threading.Lock()
        self._running = 0
        self._paired_until = 0.0
        self._paired: ort.InferenceSession | None = None
        if int8:
            known = known_roundings(network)
            if known is None:
                try:  # A service may have players. With 19, this would not end under a flood.
                    known = run_in_child(measured_roundings, network, self.threads, 10)
                except ChildEnded as error:
                    raise BackendError(f"int8 cannot be prepared: {error}") from None
                check_error(known[1])
                keep_roundings(network, *known)
            roundings, self.quantisation_error = known
            model = rounded_model(network, roundings)
            self.tolerance = INT8
        else:
            model = build_model(network, packed=True).SerializeToString()
        self._session: ort.InferenceSession | None = open_session(model, self.threads)
        if self.threads > 1 and cost_of(network).parameters <= PAIRED_PARAMETERS:
            self._paired = open_session(model, self.threads - 1)
            self.max_in_flight, self.side_by_side = 2, True

    def evaluate(self, batch: PositionBatch) -> EvaluationBatch:
        with self.chosen_session() as session:
            outputs = self._run(session, batch)
        return evaluation(batch, *outputs)

    @contextmanager
    def chosen_session(self) -> Iterator[ort.InferenceSession]:
        """Context manager for the session of one batch."""
        with self._lock:
            if self._session is None:
                raise BackendError("the onnx backend is closed")
            self._running += 1
            paired = self._running > 1 or perf_counter() < self._paired_until
            session = (self._paired if paired else None) or self._session
        try:
            yield session
        finally:
            with self._lock:
                if self._running > 1:
                    self._paired_until = perf_counter() + PAIRED_SECONDS
                self._running -= 1

    def _run(self, session: ort.InferenceSession, batch: PositionBatch) -> list[Any]:
        try:
            return list(session.run(self._outputs, feed_of(batch)))
        except Exception as error:
            raise BackendError(f"onnxruntime failed: {error}") from error

    def close(self) -> None:
        with self._lock:
            self._session = self._paired = None


def measured_roundings(network: NetworkSpec, threads: int = 0, nice: int = 0) -> Known:
    """Measure a network's roundings and their error (`check_error`). nice: of the process."""
    if nice and hasattr(os, "nice"):
        os.nice(nice)
    threads = threads or default_threads()
    sample = sample_batch(network.input_format)
    rest = sample.slice(CALIBRATED_POSITIONS, len(sample))
    observed, products = build_observed_model(network)
    exact = open_session(observed.SerializeToString(), threads)
    roundings = calibrated(exact, products, sample.slice(0, CALIBRATED_POSITIONS))
    rounded = open_session(rounded_model(network, roundings), threads)
    outputs = outputs_of(network)
    wanted, got = (session.run(outputs, feed_of(rest)) for session in (exact, rounded))
    logits = float(np.sqrt(np.square(got[0] - wanted[0]).mean()) / wanted[0].std())
    return roundings, QuantisationError(logits, value=float(np.abs(got[1] - wanted[1]).max()))


def rounded_model(network: NetworkSpec, roundings: Mapping[str, Rounding]) -> bytes:
    """Return the model with its encoders' products in 8 bits."""
    model = build_model(network, packed=True, roundings=roundings, largest_weight=largest_weight())
    return bytes(model.SerializeToString())


def check_error(error: QuantisationError) -> None:
    """Log the error of 8 bits. Raises BackendError if it is too large."""
    if not (error.logits <= MAX_LOGITS_ERROR and error.value <= MAX_VALUE_ERROR):
        raise BackendError(
            f"int8 changes this network too much (logits by {error.logits:.1%} of their spread, value by up "
            f"to {error.value:.3f}; {MAX_LOGITS_ERROR:.0%} and {MAX_VALUE_ERROR} are allowed); open it "
            "without int8"
        )
    _log.info(
        "int8 changes logits by %.1f%% of their spread, value by up to %.3f", 100 * error.logits, error.value
    )
