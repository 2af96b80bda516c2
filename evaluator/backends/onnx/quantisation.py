# SPDX-License-Identifier: GPL-3.0-or-later
"""The arithmetic of products with a constant matrix in 8 bits.

The input x [rows, in] becomes uint8, round(x * multipliers / scale) + zero clipped to 0..255. Scale and zero
are common to all channels; each channel has a multiplier. All are determined before the first batch
(`calibration.py`), so a position's result does not depend on its batch. The weights [out, in], divided by the
multipliers, become int8 with a scale per output. Sums are exact in 32 bits.

The multipliers split the differences between channels evenly between input and weights (Xiao et al. 2022,
"SmoothQuant", alpha 0.5): one channel with large values would leave the others few of the 256 steps.
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
"""Prevents a division by 0 for outputs without weights."""

LEAST_SHARE = np.float32(1 / 64)
"""Minimum range of a channel relative to the largest: it may only have been quiet so far."""


@dataclass(frozen=True, slots=True)
class Rounding:
    """The rounding of a product's input to 8 bits. multipliers: float32 [in], all above 0."""

    multipliers: FloatArray
    scale: np.float32
    zero: np.uint8


def rounding_of(least: FloatArray, largest: FloatArray, columns: FloatArray) -> Rounding:
    """Return the rounding for an input. least, largest: range of each channel, float32 [in]. columns: maximum
    of `column_weights` over the matrices that it is multiplied by, float32 [in]."""
    magnitudes, columns = _held(np.maximum(-least, largest)), _held(columns)
    multipliers = np.sqrt(columns / magnitudes)
    low = min(np.float32(0), (least * multipliers).min())
    high = max(np.float32(0), (largest * multipliers).max())
    if not high > low:  # the input was always 0
        high = np.float32(1)
    scale = np.float32((high - low) / np.float32(INPUT_STEPS))
    return Rounding(multipliers, scale, np.uint8(np.rint(-low / scale)))


def column_weights(weights: FloatArray) -> FloatArray:
    """[out, in] -> float32 [in]: the largest ratio of each channel's weight to its output's largest
    weight."""
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
    """[out, in] -> int8 [out, in] within plus and minus `largest`, and the scales float32 [out]."""
    scale = np.maximum(np.abs(weights).max(axis=1), LEAST_SCALE) / np.float32(largest)
    return np.rint(weights / scale[:, None]).astype(np.int8), scale
