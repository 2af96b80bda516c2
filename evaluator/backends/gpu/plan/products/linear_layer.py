# SPDX-License-Identifier: GPL-3.0-or-later
"""A layer that is a matrix product: its weights in the kernels' form, and its 8-bit scales."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from evaluator.backends.gpu.driver.target import Target
from evaluator.backends.gpu.plan.quantised import Packed
from evaluator.network.e4m3 import E4m3Inputs
from evaluator.network.spec import Activation, FloatArray, LayerNorm


@dataclass(frozen=True, slots=True)
class E4m3Scales:
    """inputs: factor of the layer's inputs before rounding. sums: factor of its sums for a target with the
    Open Compute Project's e4m3. first_sums: the same for its first `first_columns` outputs."""

    inputs: float
    sums: float
    first_sums: float = 0.0
    first_columns: int = 0

    def of(self, target: Target) -> tuple[float, float]:
        """Return `sums` and `first_sums` for a target."""
        unit = target.e4m3**2
        return self.sums / unit, self.first_sums / unit

    @property
    def rounding(self) -> E4m3Inputs:
        """Return the rounding of the layer's inputs."""
        return E4m3Inputs(self.inputs)


@dataclass(frozen=True, slots=True)
class Linear:
    """A dense layer or a convolution, ready for kernels/gemm.hip.

    name: of the weights. width: outputs. weights: stored [width padded, k padded]. biases: float32 [width
    padded] or [64, width padded]. convolution: 3x3, k = 9 * padded channels. packed: the same weights as
    codes, if they have codes. eight: if given, weights and inputs are pairs of 8-bit numbers, as uint16.
    norm: of the inputs, if weights and biases include it except for each row's mean and standard deviation.
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
        """Outputs including padding."""
        return len(self.weights)

    @property
    def e4m3(self) -> bool:
        """True if weights and inputs have 8 bits."""
        return self.eight is not None

    @property
    def bias_by_square(self) -> bool:
        """True if each square of a board has its own biases."""
        return self.biases is not None and self.biases.ndim == 2
