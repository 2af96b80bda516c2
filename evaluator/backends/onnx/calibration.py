# SPDX-License-Identifier: GPL-3.0-or-later
"""Calibration for 8 bits: activation ranges on real positions, and the processor's exact weight range."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from onnx import TensorProto

from evaluator.backends.common.batches import RULE50_PLANE, mask_bits
from evaluator.backends.onnx.graph import Graph
from evaluator.backends.onnx.products import ObservedProducts, range_outputs
from evaluator.backends.onnx.quantisation import LARGEST_WEIGHT, Rounding, rounding_of
from evaluator.backends.onnx.runtime import onnxruntime as ort
from protocol.batch import PLANES, PositionBatch

_CHUNK = 32
"""Positions per call; ten times as many are not faster."""

REDUCED_WEIGHT = 63
"""The largest weight for which the sum of two products with 255 fits into 16 bits."""


def feed_of(batch: PositionBatch) -> dict[str, Any]:
    """Return the inputs of a packed model for a batch."""
    values = np.ones((len(batch), PLANES, 1), np.float32)
    values[:, RULE50_PLANE, 0] = batch.positions["rule50"]
    return {"bits": mask_bits(batch.positions), "values": values}


def calibrated(
    session: ort.InferenceSession, products: ObservedProducts, batch: PositionBatch
) -> dict[str, Rounding]:
    """Return the roundings of all products, from their input ranges on a batch. session: of the observed
    model."""
    ends = [range_outputs(name) for name in products.columns]
    outputs = [end for pair in ends for end in pair]
    least, largest = [], []
    for start in range(0, len(batch), _CHUNK):
        part = batch.slice(start, min(start + _CHUNK, len(batch)))
        found = session.run(outputs, feed_of(part))
        least.append(found[0::2])
        largest.append(found[1::2])
    return {
        name: rounding_of(np.min(low, axis=0), np.max(high, axis=0), columns)
        for (name, columns), low, high in zip(
            products.columns.items(), zip(*least, strict=True), zip(*largest, strict=True), strict=True
        )
    }


@cache
def largest_weight() -> int:
    """Return the largest int8 weight for which onnxruntime's sums are exact on this processor.

    x86 without VNNI multiplies uint8 by int8 and adds two products in 16 bits, which saturate at 32,767.
    """
    g = Graph()
    x = g.input("x", TensorProto.UINT8, ["rows", 64])
    g.output(
        g.op(
            "Cast",
            g.op("MatMulInteger", x, g.constant(np.full((64, 32), 127, np.int8))),
            to=TensorProto.FLOAT,
        ),
        "sums",
        ["rows", 32],
    )
    session = ort.InferenceSession(
        g.model("sums", {}).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    sums = np.asarray(session.run(None, {"x": np.full((16, 64), 255, np.uint8)})[0])
    return LARGEST_WEIGHT if (sums == 255 * 127 * 64).all() else REDUCED_WEIGHT
