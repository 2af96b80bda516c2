"""Whole numbers of 8 bits, from -127 to 127, with a scale for each row: weights [out, in] have one for each
output, inputs one for each square.

This is the one definition of how the gpu backend rounds with precision=int8; the kernels do the same. The
largest magnitude of a row becomes 127.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from evaluator.network.eight_bits import EightBits

LARGEST = 127

_SMALLEST = 1e-30
"""What a row's largest magnitude is taken for at least, so that a row of zeros has a scale, too."""


def scales(values: NDArray[Any]) -> NDArray[Any]:
    """[..., k] -> [..., 1]: what codes of a row stand for in units, in the same type."""
    largest = np.abs(values).max(axis=-1, keepdims=True)
    result: NDArray[Any] = np.maximum(largest, values.dtype.type(_SMALLEST)) / values.dtype.type(LARGEST)
    return result


def codes(values: NDArray[Any]) -> NDArray[np.int8]:
    """[..., k] -> the nearest codes on the rows' scales, ties to even."""
    result: NDArray[np.int8] = np.rint(values / scales(values)).astype(np.int8)
    return result


def rounded(values: NDArray[Any]) -> NDArray[Any]:
    """[..., k] -> what the codes stand for, in the same type. What was rounded keeps its codes."""
    steps = scales(values)
    result: NDArray[Any] = np.rint(values / steps) * steps
    return result


@dataclass(frozen=True, slots=True)
class Int8Inputs:
    """How the inputs of a layer are rounded: each row on its own scale."""

    form: ClassVar[EightBits] = EightBits.INT8

    def rounded(self, x: NDArray[Any]) -> NDArray[Any]:
        """x as the layer takes it, in the same type."""
        return rounded(x)
