# SPDX-License-Identifier: GPL-3.0-or-later
"""The 8-bit number format e4m3: a sign, four exponent and three mantissa bits; maximum 448.

Defined by the Open Compute Project ("OFP8"). This module defines the rounding of the gpu backend with
precision=fp8; the kernels do the same. Scales are powers of two, so scaling does not round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

LARGEST = 448.0

_SMALLEST_NORMAL, _STEP_OF_SUBNORMALS = 2.0**-6, 2.0**-9
_MANTISSA_BITS = 3


def nearest(values: NDArray[Any]) -> NDArray[Any]:
    """Round float32 or float64 of any shape to the nearest e4m3 numbers in the same type, ties to even;
    saturates at 448."""
    clipped = np.clip(values, -LARGEST, LARGEST)
    unsigned = np.dtype(f"u{clipped.itemsize}").type
    dropped = np.finfo(clipped.dtype).nmant - _MANTISSA_BITS
    bits = clipped.view(unsigned)
    half, last = unsigned((1 << dropped - 1) - 1), (bits >> unsigned(dropped)) & unsigned(1)
    kept = ~unsigned((1 << dropped) - 1)
    normal = ((bits + half + last) & kept).view(clipped.dtype)
    step = clipped.dtype.type(_STEP_OF_SUBNORMALS)
    result: NDArray[Any] = np.where(
        np.abs(clipped) < _SMALLEST_NORMAL, np.rint(clipped / step) * step, normal
    )
    return result


def codes(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the bits of e4m3 numbers; both zeros become 0, because gfx942's variant reads 0x80 as NaN."""
    magnitudes = np.abs(values).astype(np.float32)
    bits = magnitudes.view(np.uint32)
    exponents = (bits >> np.uint32(23)).astype(np.int32) - 127
    normal = (exponents + 7) * 8 + ((bits >> np.uint32(20)) & np.uint32(7)).astype(np.int32)
    subnormal = np.rint(magnitudes / np.float32(_STEP_OF_SUBNORMALS)).astype(np.int32)
    result = np.where(magnitudes < _SMALLEST_NORMAL, subnormal, normal)
    signed: NDArray[np.uint8] = np.where((values < 0) & (result > 0), result | 0x80, result).astype(np.uint8)
    return signed


def decoded(bits: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return the numbers of codes. NaN codes, which this module never makes, are not supported."""
    exponents, mantissas = (bits >> 3 & 15).astype(np.int32), (bits & 7).astype(np.float32)
    normal = np.ldexp(1 + mantissas / 8, exponents - 7)
    magnitudes = np.where(exponents > 0, normal, mantissas * _STEP_OF_SUBNORMALS)
    return np.where(bits & 0x80, -magnitudes, magnitudes).astype(np.float32)


def scale_for(largest: float) -> float:
    """Return the largest power of two that scales a magnitude to at most 448; 1 for 0."""
    return 2.0 ** float(np.floor(np.log2(LARGEST / largest))) if largest > 0 else 1.0


def rounded_matrix(weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """Round a matrix to e4m3 with one scale for the whole matrix."""
    scale = np.float32(scale_for(float(np.abs(weights).max(initial=0.0))))
    return (nearest(weights * scale) / scale).astype(np.float32)


@dataclass(frozen=True, slots=True)
class E4m3Inputs:
    """Rounding of a layer's inputs to e4m3 after multiplication by `scale`, a power of two."""

    scale: float

    def rounded(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return the rounded input in the same type."""
        scale = x.dtype.type(self.scale)
        result: NDArray[Any] = nearest(x * scale) / scale
        return result
