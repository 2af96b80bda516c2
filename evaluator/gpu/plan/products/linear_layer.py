# SPDX-License-Identifier: GPL-3.0-or-later
"""A layer that is a matrix product: its weights as kernels read them, and the scales of those of 8 bits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from evaluator.gpu.driver.target import Target
from evaluator.gpu.plan.quantised import Packed
from evaluator.network.e4m3 import E4m3Inputs
from evaluator.network.spec import Activation, FloatArray, LayerNorm


@dataclass(frozen=True, slots=True)
class E4m3Scales:
    """inputs: what the layer's inputs were multiplied with before they were rounded. sums: what its sums are
    multiplied with for a target whose e4m3 is that of the Open Compute Project; those of its first
    `first_columns` outputs with first_sums."""

    inputs: float
    sums: float
    first_sums: float = 0.0
    first_columns: int = 0

    def of(self, target: Target) -> tuple[float, float]:
        """`sums` and `first_sums` for a target."""
        unit = target.e4m3**2
        return self.sums / unit, self.first_sums / unit

    @property
    def rounding(self) -> E4m3Inputs:
        """How the layer's inputs are rounded."""
        return E4m3Inputs(self.inputs)


@dataclass(frozen=True, slots=True)
class Linear:
    """A dense layer or a convolution, ready for kernels/gemm.hip.

    name: of the weights; width: outputs. weights: stored [width padded, k padded]; biases: float32
    [width padded] or [64, width padded]. convolution: 3x3, k = 9 * padded channels. packed: the same weights
    as codes, where they are codes. eight: if given, the weights are pairs of numbers of 8 bits, as uint16,
    and so are the inputs. norm: of the inputs, if it is in weights and biases but for each row's mean and
    deviation.
    """

    name: str
    width: int
    weights: NDArray[Any]
    biases: FloatArray | None
    activation: Activation
    convolution: bool = False
    packed: Packed | None = None
    eight: E4m3Scales | None = None
    norm: LayerNorm | None = None

    @property
    def padded_width(self) -> int:
        """Outputs with those that pad them."""
        return len(self.weights)

    @property
    def e4m3(self) -> bool:
        """Whether weights and inputs have 8 bits."""
        return self.eight is not None

    @property
    def bias_by_square(self) -> bool:
        """Whether each square of a board has biases of its own."""
        return self.biases is not None and self.biases.ndim == 2
