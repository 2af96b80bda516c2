# SPDX-License-Identifier: GPL-3.0-or-later
"""Parses the options of the gpu backend."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from evaluator.backends.common.agreement import BF16, FP8, FP16, FP32, INT4, INT8, Tolerance
from evaluator.backends.common.base import BackendError
from evaluator.backends.gpu.driver.target import Precision, Target
from evaluator.backends.gpu.plan import fp8
from evaluator.backends.gpu.plan.plan import FP8_POSITIONS
from evaluator.backends.gpu.plan.quantised import WeightFormat, rounded_network
from evaluator.backends.gpu.tuning.when import Tuning
from evaluator.network.spec import AttentionBody, NetworkSpec

log = logging.getLogger(__name__)

_TOLERANCES = {
    Precision.FP32: FP32,
    Precision.FP16: FP16,
    Precision.BF16: BF16,
    WeightFormat.INT8: INT8,
    WeightFormat.INT4: INT4,
}

AUTO = "auto"
"""The value of `precision` that chooses between fp16 and fp8 (precision.py)."""

_FP8 = "fp8"
"""The value of `precision` for encoders' products in e4m3 and the rest in fp16."""

PRECISIONS = (AUTO, *(each.value for each in Precision), _FP8)
"""All values of `precision`."""


@dataclass(frozen=True, slots=True)
class Formats:
    """Number formats: of everything; of the encoders' weights, if different. fp8: the smallest batch with the
    encoders' products in e4m3; 0: none."""

    stored: Precision = Precision.FP16
    weights: WeightFormat | None = None
    fp8: int = 0

    def __str__(self) -> str:
        name = f"{_FP8} from {self.fp8} positions" if self.fp8 else self.stored.value
        return name + (f" with {self.weights.value} weights" if self.weights else "")

    @property
    def tolerance(self) -> Tolerance:
        """Tolerance against the network as stored in its file."""
        return FP8 if self.fp8 else _TOLERANCES[self.weights or self.stored]


def formats(precision: str, weights: str) -> Formats:
    """Parse the options. Raises BackendError."""
    if precision == _FP8:
        if weights:
            raise BackendError(
                f"weights={weights} goes with precision=fp16, not with {precision}, which has its own"
            )
        log.warning(
            "precision=fp8 changes the network's outputs; precision=auto takes it only where games showed no "
            "loss. `wavefront-evaluator verify --precision` prints by how much"
        )
        return Formats(fp8=FP8_POSITIONS)
    try:
        stored = Precision.FP16 if precision == AUTO else Precision(precision)
    except ValueError as error:
        raise BackendError(f"precision {precision!r} is not one of {', '.join(PRECISIONS)}") from error
    if not weights:
        return Formats(stored)
    try:
        form = WeightFormat(weights)
    except ValueError as error:
        known = ", ".join(each.value for each in WeightFormat)
        raise BackendError(
            f"weights {weights!r} is not one of {known}; without it they are stored as precision says"
        ) from error
    if stored is not Precision.FP16:
        raise BackendError(f"weights={weights} goes with precision=fp16, not with {precision}")
    return Formats(stored, form)


def tuning_of(text: str) -> Tuning:
    """Parse the option `tuning`. Raises BackendError."""
    try:
        return Tuning(text)
    except ValueError as error:
        raise BackendError(f"tuning {text!r} is not one of {', '.join(Tuning)}") from error


def no_fp8(network: NetworkSpec, target: Target) -> str:
    """Return why a network cannot have its encoders' products in e4m3, or a target gains nothing from it;
    empty if it can and does."""
    if reason := target.no_e4m3:
        return (
            f"fp8 is not for {target.name}: {reason}; NVIDIA GPUs from compute capability 8.9 on gain by it, "
            "and gfx942, gfx950, gfx1200 and gfx1201"
        )
    if not (isinstance(network.body, AttentionBody) and network.body.encoders):
        return "fp8 is for attention networks; this one has no encoders"
    return ""


def fp8_network(network: NetworkSpec, target: Target) -> NetworkSpec:
    """Return the network with its encoders' products in e4m3. Raises BackendError (see no_fp8)."""
    if reason := no_fp8(network, target):
        raise BackendError(f"precision={reason}; use precision=fp16")
    return fp8.rounded_network(network)


def rounded(network: NetworkSpec, form: WeightFormat | None) -> NetworkSpec:
    """Return the network with its encoders' weights rounded to a format, if any. Raises BackendError."""
    if form is None:
        return network
    if not (isinstance(network.body, AttentionBody) and network.body.encoders):
        raise BackendError(f"weights={form.value} is for attention networks; this one has no encoders")
    if form is WeightFormat.INT4:
        log.warning(
            "weights=int4 is an experiment: it changes the network's outputs. `wavefront-evaluator verify "
            "--backend gpu:weights=int4` prints by how much"
        )
    return rounded_network(network, form)
