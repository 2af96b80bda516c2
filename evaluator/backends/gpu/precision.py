# SPDX-License-Identifier: GPL-3.0-or-later
"""precision=auto: fp16, or fp8 from some batch size on, by this network's errors and this card's speed.

A network is computed in both on the included positions (backends/common/sample.py). fp8 is taken where it is
at least 8 % faster, if its errors are within LIMITS, which come from games (docs/lab/gpu-formats.md). The
verdict is kept for this network, card and these kernels.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from evaluator.backends.common.caching import cached_file, keep
from evaluator.backends.common.device_lease import DeviceLease, exclusive_lease
from evaluator.backends.common.sample import FILE, sample_batch
from evaluator.backends.gpu.driver.compiler import KERNELS
from evaluator.backends.gpu.driver.device import DeviceInfo
from evaluator.backends.gpu.opening import OpenNetwork, Wanted, open_on
from evaluator.backends.gpu.options import Formats, no_fp8
from evaluator.backends.gpu.plan.plan import FP8_POSITIONS
from evaluator.backends.gpu.tuning.when import Tuning
from evaluator.network.spec import NetworkSpec
from protocol.batch import EvaluationBatch, PositionBatch

log = logging.getLogger(__name__)

WORTHWHILE = 1.08
"""Least ratio of the times of fp16 and fp8."""

SIZES = (64, 256, 1 << 30)
"""The trial takes the first bucket of at least each size, or the last one."""


@dataclass(frozen=True, slots=True)
class RoundingError:
    """Differences of two results for the same positions. kl: mean divergence of the policies over the legal
    moves, in nats. same_move: share of positions with the same best move. value, moves_left: mean differences
    of W − L and of the moves left in plies; largest_value, largest_moves_left: their maxima."""

    kl: float
    same_move: float
    value: float
    largest_value: float
    moves_left: float
    largest_moves_left: float

    def beyond(self, limits: RoundingError) -> str:
        """Return the first error that is not within the limits, in words; empty if all are."""
        for name, limit in asdict(limits).items():
            found = getattr(self, name)
            if not (found >= limit if name == "same_move" else found <= limit):
                return f"{name.replace('_', ' ')} {found:.3g}, limit {limit:g}"
        return ""


LIMITS = RoundingError(0.0018, 0.98, 0.006, 0.2, 0.45, 5.0)
"""At most 5 Elo are lost within these (docs/lab/gpu-formats.md)."""


@dataclass(frozen=True, slots=True)
class Fp8Verdict:
    """fp8_from: smallest batch in fp8; 0: all in fp16. text: why, with figures, for people."""

    fp8_from: int
    text: str

    @property
    def formats(self) -> Formats:
        return Formats(fp8=self.fp8_from)


def rounding_error(exact: EvaluationBatch, found: EvaluationBatch, batch: PositionBatch) -> RoundingError:
    """Return the differences of two results. Positions without legal moves do not count for the policy."""
    offsets = batch.move_offsets.astype(np.int64)
    counts = np.diff(offsets)
    starts = offsets[:-1][counts > 0]
    rows = np.repeat(np.arange(len(starts)), counts[counts > 0])

    def log_softmax(logits: Any) -> Any:
        logits = logits.astype(np.float64)
        shifted = logits - np.maximum.reduceat(logits, starts)[rows]
        return shifted - np.log(np.add.reduceat(np.exp(shifted), starts))[rows]

    p, q = log_softmax(exact.logits), log_softmax(found.logits)
    best = np.maximum.reduceat(q, starts)[rows] == q
    same = np.maximum.reduceat(np.where(best, p, -np.inf), starts) == np.maximum.reduceat(p, starts)
    value = np.abs((exact.wdl - found.wdl) @ np.array([1.0, 0.0, -1.0]))
    left = np.abs(exact.moves_left - found.moves_left)
    kl = np.add.reduceat(np.exp(p) * (p - q), starts).mean()
    figures = (kl, same.mean(), value.mean(), value.max(), left.mean(), left.max())
    return RoundingError(*(float(each) for each in figures))


def judged(error: RoundingError, speeds: Mapping[int, tuple[float, float]]) -> Fp8Verdict:
    """Return the verdict. speeds: milliseconds in fp16 and in fp8, by batch size."""
    times = {size: exact / rounded for size, (exact, rounded) in sorted(speeds.items())}
    slow = [size for size, ratio in times.items() if ratio < WORTHWHILE]
    fast = [size for size in times if size > max(slow, default=0)]
    text = ", ".join(f"{ratio:.2f} times as fast at {size}" for size, ratio in times.items())
    if not fast:
        return Fp8Verdict(0, f"fp8 is {text} positions")
    text = (
        f"fp8 is {text} positions; KL {error.kl:.4f}, same move {error.same_move:.1%}, "
        f"W − L off by {error.value:.4f}, at most {error.largest_value:.3f}"
    )
    too_large = error.beyond(LIMITS)
    return Fp8Verdict(0, f"{text}: too much, {too_large}") if too_large else Fp8Verdict(fast[0], text)


class Fp8Choice:
    """The choice for one network and card. verdict: None until it is known."""

    def __init__(self, info: DeviceInfo, network: NetworkSpec, wanted: Wanted) -> None:
        self._info, self._network, self._wanted = info, network, wanted
        reason = "deterministic=true" if wanted.deterministic else no_fp8(network, info.target)
        if not reason and wanted.buckets[-1] < FP8_POSITIONS:
            reason = f"batches of at most {wanted.buckets[-1]} positions gain nothing"
        self._path = None if reason else _path(network, info)
        self.verdict = Fp8Verdict(0, reason) if reason else _read(self._path)
        self._exact: EvaluationBatch | None = None
        self._times: dict[int, float] = {}

    def open(self) -> OpenNetwork:
        """Open the network as the verdict says; in fp16 without one. Raises BackendError."""
        formats = self._wanted.formats if self.verdict is None else self.verdict.formats
        opened = open_on(self._info, self._network, replace(self._wanted, formats=formats))
        if self.verdict is None and not opened.provisional:
            self._observe(opened)
        return opened

    def decide(
        self, opened: OpenNetwork, lease: DeviceLease, progress: Callable[[str], None]
    ) -> OpenNetwork | None:
        """Find the verdict, unless it is known, and return the network opened in fp8; None if that is not the
        choice.

        opened: the network in fp16, with measured kernels: either new, or served and seen by `open`. lease,
        progress: see Backend.tuned. Raises BackendError and Stopped.
        """
        if self.verdict is None:
            progress("comparing fp8 with fp16")
            if not self._times:
                self._observe(opened, lease)
            assert self._exact is not None
            with self._open_in_fp8(Formats(fp8=FP8_POSITIONS), tuple(self._times), lease, progress) as trial:
                times = {size: (ms, trial.executor.time(size)) for size, ms in self._times.items()}
                batch = self._positions()
                found = _evaluate(trial, batch, lease)
            self.verdict = judged(rounding_error(self._exact, found, batch), times)
            keep(self._path, json.dumps(asdict(self.verdict)).encode())
            log.info("%s: precision %s: %s", self._info.name, self.verdict.formats, self.verdict.text)
        if not self.verdict.fp8_from:
            return None
        return self._open_in_fp8(self.verdict.formats, opened.executor.buckets, lease, progress)

    def _positions(self) -> PositionBatch:
        return sample_batch(self._network.input_format)

    def _observe(self, opened: OpenNetwork, lease: DeviceLease = exclusive_lease) -> None:
        """Time a network in fp16, and keep its results. Nobody else may use it yet."""
        buckets = opened.executor.buckets
        sizes = {next((each for each in buckets if each >= size), buckets[-1]) for size in SIZES}
        self._times = {size: opened.executor.time(size, 3) for size in sorted(sizes)}
        self._exact = _evaluate(opened, self._positions(), lease)

    def _open_in_fp8(
        self,
        formats: Formats,
        buckets: tuple[int, ...],
        lease: DeviceLease,
        progress: Callable[[str], None],
    ) -> OpenNetwork:
        """Return the network in fp8 with measured kernels. Raises BackendError and Stopped."""
        wanted = replace(self._wanted, formats=formats, buckets=buckets, trial=True)
        opened = open_on(self._info, self._network, wanted, lease=lease)
        if not opened.provisional or wanted.tuning is Tuning.OFF:
            return opened
        with opened:
            measured = opened.measured_anew(lease, progress)
        assert measured is not None
        return measured


def _evaluate(opened: OpenNetwork, batch: PositionBatch, lease: DeviceLease) -> EvaluationBatch:
    step, results = opened.executor.buckets[-1], []
    for at in range(0, len(batch), step):
        with lease():
            results.append(opened.executor.evaluate([batch.slice(at, min(at + step, len(batch)))]))
    return EvaluationBatch.concatenate(results)


def _path(network: NetworkSpec, info: DeviceInfo) -> Path | None:
    parts = [network.content_hash, info.name, info.target.name, repr((LIMITS, WORTHWHILE, SIZES))]
    parts += [hashlib.sha256(path.read_bytes()).hexdigest() for path in (FILE, *sorted(KERNELS.glob("*.h*")))]
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]
    return cached_file("precision", f"{digest}.json")


def _read(path: Path | None) -> Fp8Verdict | None:
    """Return a kept verdict; None if the file is missing or damaged."""
    try:
        return None if path is None else Fp8Verdict(**json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None
