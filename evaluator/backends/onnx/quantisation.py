# SPDX-License-Identifier: GPL-3.0-or-later
"""How a product with a constant matrix is computed in 8 bits.

The input x [rows, in] becomes uint8, round(x * multipliers / scale) + zero held to 0..255, with one scale and
one zero for all channels and a multiplier for each, all of which are found before the first batch
(`calibration.py`): what comes out for a position does not depend on its batch. The weights [out, in], divided
by the multipliers, become int8 with a scale for each output. Sums are exact in 32 bits.

The multipliers share the channels' unevenness out between input and weights (Xiao et al. 2022, "SmoothQuant",
with its alpha at 0.5): a channel with few large values would leave the others few of the 256 steps.
training/model/quantisation.py computes the same in PyTorch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evaluator.network.spec import FloatArray

INPUT_STEPS = 255
LARGEST_WEIGHT = 127

LEAST_SCALE = np.float32(1e-12)
"""Keeps outputs without weights from a division by 0."""

LEAST_SHARE = np.float32(1 / 64)
"""No channel counts as smaller than this part of the largest: it may have been quiet only so far."""


@dataclass(frozen=True, slots=True)
class Rounding:
    """What makes a product's input 8-bit. multipliers: float32 [in], all above 0."""

    multipliers: FloatArray
    scale: np.float32
    zero: np.uint8


def rounding_of(least: FloatArray, largest: FloatArray, columns: FloatArray) -> Rounding:
    """The rounding for an input of such ranges. least, largest: of each channel, float32 [in]. columns:
    `column_weights` of the matrices that it is multiplied by, the largest of them, float32 [in]."""
    magnitudes, columns = _held(np.maximum(-least, largest)), _held(columns)
    multipliers = np.sqrt(columns / magnitudes)
    low = min(np.float32(0), (least * multipliers).min())
    high = max(np.float32(0), (largest * multipliers).max())
    if not high > low:  # An input that was always 0.
        high = np.float32(1)
    scale = np.float32((high - low) / np.float32(INPUT_STEPS))
    return Rounding(multipliers, scale, np.uint8(np.rint(-low / scale)))


def column_weights(weights: FloatArray) -> FloatArray:
    """[out, in] -> float32 [in]: the largest share that each channel's weight has of its output's largest."""
    magnitudes = np.abs(weights)
    shares: FloatArray = (magnitudes / np.maximum(magnitudes.max(axis=1), LEAST_SCALE)[:, None]).max(axis=0)
    return shares


def _held(magnitudes: FloatArray) -> FloatArray:
    largest = magnitudes.max()
    if not largest > 0:
        return np.ones_like(magnitudes)
    held: FloatArray = np.maximum(magnitudes, largest * LEAST_SHARE)
    return held


def quantised_weights(
    weights: FloatArray, largest: int = LARGEST_WEIGHT
) -> tuple[NDArray[np.int8], FloatArray]:
    """[out, in] -> int8 [out, in] within plus and minus `largest`, and float32 [out] to multiply it by."""
    scale = np.maximum(np.abs(weights).max(axis=1), LEAST_SCALE) / np.float32(largest)
    return np.rint(weights / scale[:, None]).astype(np.int8), scale
