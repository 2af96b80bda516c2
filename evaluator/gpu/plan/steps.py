"""A Program under construction: its memory, its order, and the data that its operations take.

Shapes: a board is a Matrix of positions * 64 rows (one per square), a vector one of positions rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluator.gpu.driver.compiler import KernelKey
from evaluator.gpu.driver.target import Precision, Target
from evaluator.gpu.plan import weights as pack
from evaluator.gpu.plan.program import Argument, Branch, Buffer, Launch, Matrix, Program, Space
from evaluator.gpu.plan.quantised import Packed
from evaluator.gpu.plan.tiles import Chooser
from evaluator.gpu.plan.weights import round_up
from evaluator.network.spec import Activation, FloatArray, Gating, LayerNorm

ACTIVATION_CODES = {
    Activation.NONE: 0,
    Activation.RELU: 1,
    Activation.RELU_SQUARED: 2,
    Activation.MISH: 3,
    Activation.SWISH: 4,
    Activation.SELU: 5,
    Activation.TANH: 6,
    Activation.SIGMOID: 7,
}
"""As kernels/activation.h numbers them."""

_CHAINED_POSITIONS = 8
"""From so many positions on everything runs as one chain of kernels. For fewer, smolgen is a second branch
beside the products for q, k and v: one position of the BT4 shape takes 0.78 ms that way, 0.84 ms in a chain.
At 32 the chain is faster, by 3 %."""

_SHARED_PRODUCT_POSITIONS = 96
"""Chains of fewer positions compute what smolgen takes of each square in one product with q, k and v. For
more, the odd width costs the product more (BT4 at 256: 158 us where two take 147 and 7)."""


class PlanError(Exception):
    """The kernels cannot run this network; the message says what is in the way."""


@dataclass(frozen=True, slots=True)
class Linear:
    """A dense layer or a convolution, ready for kernels/gemm.hip.

    name: of the weights; width: outputs. weights: stored [width padded, k padded]; biases: float32
    [width padded] or [64, width padded]. convolution: 3x3, k = 9 * padded channels. packed: the same weights
    as codes, where they are codes.
    """

    name: str
    width: int
    weights: NDArray[Any]
    biases: FloatArray | None
    activation: Activation
    convolution: bool = False
    packed: Packed | None = None


@dataclass(frozen=True, slots=True)
class After:
    """What follows a product in the same pass: norm, then gating.

    parts: (width, used) where a row is several parts of `width` elements, of which the first `used` count for
    the norm; its gammas and betas are 0 for the others. (0, 0): all of the row counts.
    """

    norm: LayerNorm | None = None
    gating: Gating | None = None
    parts: tuple[int, int] = (0, 0)

    def __bool__(self) -> bool:
        return self.norm is not None or self.gating is not None


class Steps:
    """A program under construction. Weights are made once: `known` carries them from one batch size to the
    next."""

    def __init__(
        self,
        positions: int,
        target: Target,
        precision: Precision,
        choose: Chooser,
        known: dict[str, NDArray[Any]] | None = None,
        *,
        fused: bool = True,
    ) -> None:
        self.program = Program(positions, weights={} if known is None else known)
        self.positions = positions
        self.target = target
        self.precision = precision
        self._choose = choose
        self._fused = fused
        self._aside = False
        self._forked = False

    # -- memory ----------------------------------------------------------------------------------------

    def weight(self, name: str, make: Callable[[], NDArray[Any]]) -> Buffer:
        """An array on the device, made when it is first asked for."""
        if name not in self.program.weights:
            try:
                self.program.weights[name] = np.ascontiguousarray(make())
            except pack.WeightError as error:
                raise PlanError(f"{name}: {error}") from error
        return Buffer(Space.WEIGHTS, name)

    def work(self, name: str, size: int) -> Buffer:
        """A buffer of at least `size` bytes; the same name is the same memory."""
        self.program.work[name] = max(size, self.program.work.get(name, 0))
        return Buffer(Space.WORK, name)

    def matrix(self, name: str, rows: int, width: int) -> Matrix:
        stride = round_up(width, self.precision.chunk)
        return Matrix(self.work(name, rows * stride * self.precision.bytes), rows, width, stride)

    @property
    def chained(self) -> bool:
        """Whether everything is one chain of kernels, a second branch not paying."""
        return self.positions >= _CHAINED_POSITIONS

    @property
    def shares_products(self) -> bool:
        """Whether one product of twice the purpose beats two."""
        return self.chained and self.positions < _SHARED_PRODUCT_POSITIONS

    @staticmethod
    def exchange(name: str) -> Buffer:
        return Buffer(Space.EXCHANGE, name)

    # -- order -----------------------------------------------------------------------------------------

    def fork(self) -> None:
        """What follows, until `main`, may run beside what comes after that."""
        self._forked = not self.chained
        if self._forked:
            self.program.steps.append(Branch.FORK)
            self._aside = True

    def main(self) -> None:
        """End of the second branch's launches."""
        self._aside = False

    def join(self) -> None:
        """From here on the second branch has ended."""
        if self._forked:
            self.program.steps.append(Branch.JOIN)

    def launch(
        self,
        file: str,
        constants: dict[str, int],
        grid: tuple[int, int, int],
        threads: int,
        arguments: tuple[Argument, ...],
        label: str,
        *,
        shared_bytes: int = 0,
        cluster: int = 0,
        together: int = 1,
    ) -> None:
        if shared_bytes > self.target.shared_bytes:
            raise PlanError(
                f"{label}: needs {shared_bytes} bytes of shared memory per block; {self.target.name} has "
                f"{self.target.shared_bytes}"
            )
        key = KernelKey(file, self.precision, tuple(constants.items()))
        self.program.steps.append(
            Launch(key, grid, threads, shared_bytes, arguments, label, self._aside, cluster, together)
        )

    def view(self, matrix: Matrix, rows: int) -> Matrix:
        """The same memory with another number of rows."""
        stride = matrix.rows * matrix.stride // rows
        return replace(matrix, rows=rows, width=stride, stride=stride)
