"""What the values of the gpu backend's options mean."""

from __future__ import annotations

import logging

from evaluator.backends.agreement import BF16, FP16, FP32, INT4, INT8
from evaluator.backends.base import BackendError
from evaluator.gpu.driver.target import Precision
from evaluator.gpu.plan.quantised import WeightFormat, rounded_network
from evaluator.network.spec import AttentionBody, NetworkSpec

log = logging.getLogger(__name__)

TOLERANCES = {
    Precision.FP32: FP32,
    Precision.FP16: FP16,
    Precision.BF16: BF16,
    WeightFormat.INT8: INT8,
    WeightFormat.INT4: INT4,
}
"""How close to the reference a backend comes, by what its weights are stored as."""


def formats(precision: str, weights: str) -> tuple[Precision, WeightFormat | None]:
    """How everything is stored, and how the encoders' weights are where they are not like everything else.
    Raises BackendError."""
    try:
        stored = Precision(precision)
    except ValueError as error:
        known = ", ".join(each.value for each in Precision)
        raise BackendError(f"precision {precision!r} is not one of {known}") from error
    if not weights:
        return stored, None
    try:
        form = WeightFormat(weights)
    except ValueError as error:
        known = ", ".join(each.value for each in WeightFormat)
        raise BackendError(
            f"weights {weights!r} is not one of {known}; without it they are stored as precision says"
        ) from error
    if stored is not Precision.FP16:
        raise BackendError(f"weights={weights} goes with precision=fp16, not with {precision}")
    return stored, form


def rounded(network: NetworkSpec, form: WeightFormat | None) -> NetworkSpec:
    """The network with its encoders' weights rounded to a format; None leaves them. Raises BackendError."""
    if form is None:
        return network
    if not (isinstance(network.body, AttentionBody) and network.body.encoders):
        raise BackendError(f"weights={form.value} is for attention networks; this one has no encoders")
    if form is WeightFormat.INT4:
        log.warning(
            "weights=int4 is an experiment: it changes what the network says. `python -m evaluator verify "
            "--backend gpu:weights=int4` prints by how much"
        )
    return rounded_network(network, form)


def batch_sizes(text: str) -> tuple[int, ...]:
    """From "1+8+64", ascending; none from "". Raises BackendError."""
    try:
        sizes = sorted({int(size) for size in text.split("+") if size})
    except ValueError:
        sizes = [0]
    if sizes and sizes[0] < 1:
        raise BackendError(f"buckets {text!r}: write sizes from 1, as in 1+8+64")
    return tuple(sizes)
