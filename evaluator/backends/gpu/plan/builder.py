# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds a Program: its memory, its order, and the check of each launch against the target.

The functions of `products` and `steps.py` append the launches of one operation each to a ProgramBuilder.
Shapes: a board is a Matrix of positions * 64 rows (one per square), a vector one of positions rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.driver.compiler import KernelKey
from evaluator.backends.gpu.driver.target import AMD_UNITS, Precision, Target
from evaluator.backends.gpu.plan import weights as pack
from evaluator.backends.gpu.plan.program import (
    Argument,
    Branch,
    Buffer,
    Launch,
    Matrix,
    PlanError,
    Program,
    Space,
)
from evaluator.backends.gpu.plan.tiles import Choice, Chooser, Measurements
from evaluator.backends.gpu.plan.weights import round_up
from evaluator.network.e4m3 import E4m3Inputs
from evaluator.network.spec import Activation

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
"""Codes of the activations in kernels/activation.h."""

"""Codes of the 8-bit formats in kernels/portable.h; 0 for elements."""

_CHAINED_POSITIONS = 8
"""Minimum positions for one chain of kernels. Below, smolgen is a second branch next to the products for q, k
and v: one position of the BT4 shape takes 0.78 ms that way, 0.84 ms in a chain. At 32 positions the chain is
3 % faster."""

_SHARED_PRODUCT_POSITIONS = 96
"""Positions below which a chain computes smolgen's compression in one product with q, k and v. Above, the odd
width costs more (BT4 at 256: 158 us, instead of 147 and 7 for two products)."""


@dataclass(frozen=True, slots=True)
class Geometry:
    """Launch geometry, as in Launch."""

    grid: tuple[int, int, int]
    threads: int
    shared_bytes: int = 0
    cluster: int = 0
    together: int = 1


class ProgramBuilder:
    """A program for one batch size, to which launches are appended.

    choose: decides how to compute each matrix product. fused: allow attention and the product before it in
    one kernel. left: allow norms to be left to the products that read the rows. measurements: the basis of
    `choose`, if products were measured.
    """

    def __init__(
        self,
        positions: int,
        target: Target,
        precision: Precision,
        choose: Chooser,
        known: dict[str, NDArray[Any]] | None = None,
        *,
        fused: bool = True,
        left: bool = False,
        measurements: Measurements | None = None,
    ) -> None:
        """known: weight arrays by name, to which this program's are added; programs with the same dictionary
        share them."""
        self.program = Program(positions, weights={} if known is None else known)
        self.positions = positions
        self.target = target
        self.precision = precision
        self.choose = choose
        self.fused = fused
        self._left = left
        self.measurements = measurements
        self.aside = False
        """True while launches are appended to the second branch of work."""
        self._forked = False

    def choose_normed(self, product: Product) -> Choice:
        """Return the fastest choice that can take and leave norms. Raises PlanError if there is none, or if
        nothing was measured and another choice was made."""
        if self.measurements is None:
            choices = [self.choose(product)]
        else:
            choices = [each.choice for each in self.measurements(product)]
        found = next((choice for choice in choices if choice.whole), None)
        if found is None:
            raise PlanError(f"{product}: not computed by a kernel that takes norms")
        return found

    # -- memory ----------------------------------------------------------------------------------------

    def counters(self, name: str, count: int) -> Buffer:
        """Return a buffer of 32-bit zeros for counting; kernels reset them to zero."""
        self.program.written.add(name)
        return self.weight(name, lambda: np.zeros(count, np.uint32))

    def weight(self, name: str, make: Callable[[], NDArray[Any]]) -> Buffer:
        """Return a weight array on the device, made on first use. Raises PlanError if a weight cannot be
        stored."""
        if name not in self.program.weights:
            try:
                self.program.weights[name] = np.ascontiguousarray(make())
            except pack.WeightError as error:
                raise PlanError(f"{name}: {error}") from error
        return Buffer(Space.WEIGHTS, name)

    def work(self, name: str, size: int) -> Buffer:
        """Return a buffer of at least `size` bytes; equal names share memory."""
        self.program.work[name] = max(size, self.program.work.get(name, 0))
        return Buffer(Space.WORK, name)

    def matrix(self, name: str, rows: int, width: int) -> Matrix:
        """Return a matrix in a buffer of that name, with rows padded to whole chunks."""
        stride = round_up(width, self.precision.chunk)
        return Matrix(self.work(name, rows * stride * self.precision.bytes), rows, width, stride)

    def rounded(self, name: str, rows: int, width: int, inputs: E4m3Inputs) -> Matrix:
        """Return a matrix of pairs of 8-bit numbers for a layer's inputs; width must be a multiple of 16."""
        return Matrix(self.work(f"{name}.e4m3", rows * width), rows, width // 2, width // 2, inputs=inputs)

    def round_scale(self, rounded: Matrix | None) -> float:
        """Return the factor before rounding into a matrix of e4m3 numbers; 0 for other matrices."""
        inputs = None if rounded is None else rounded.inputs
        return inputs.scale * self.target.e4m3 if inputs is not None else 0.0

    def of_branch(self, name: str) -> str:
        """Return a buffer name for the current branch of work, because both branches run concurrently."""
        return f"{name}.aside" if self.aside else name

    @staticmethod
    def format_code(matrix: Matrix | None) -> int:
        """Return the code of a matrix's format in kernels/portable.h."""
        return int(matrix is not None and matrix.inputs is not None)

    @staticmethod
    def exchange(name: str) -> Buffer:
        """Return one of the batch's own inputs and outputs (Space.EXCHANGE)."""
        return Buffer(Space.EXCHANGE, name)

    # -- order -----------------------------------------------------------------------------------------

    @property
    def chained(self) -> bool:
        """True if all kernels form one chain, because a second branch does not pay."""
        return self.positions >= _CHAINED_POSITIONS

    @property
    def shares_products(self) -> bool:
        """True if one product for q, k, v and smolgen is faster than two."""
        return self.chained and self.positions < _SHARED_PRODUCT_POSITIONS

    @property
    def leaves_norms(self) -> bool:
        """True if norms may be left to the products that read the rows."""
        return self._left and self.chained and self.target.matrix_unit(self.precision) in AMD_UNITS

    def fork(self) -> None:
        """Start the second branch. Launches until `main` may run concurrently with those after it."""
        self._forked = not self.chained
        if self._forked:
            self.program.steps.append(Branch.FORK)
            self.aside = True

    def main(self) -> None:
        """End the second branch's launches."""
        self.aside = False

    def join(self) -> None:
        """Make all later launches wait for the second branch."""
        if self._forked:
            self.program.steps.append(Branch.JOIN)

    def launch(
        self,
        file: str,
        constants: dict[str, int],
        geometry: Geometry,
        arguments: tuple[Argument, ...],
        label: str,
    ) -> None:
        """Append the kernel `kernels/FILE.hip` with its constants. Raises PlanError if a block needs more
        shared memory than the target has."""
        if geometry.shared_bytes > self.target.shared_bytes:
            raise PlanError(
                f"{label}: needs {geometry.shared_bytes} bytes of shared memory per block; "
                f"{self.target.name} has {self.target.shared_bytes}"
            )
        self.program.steps.append(
            Launch(
                KernelKey(file, self.precision, tuple(constants.items())),
                geometry.grid,
                geometry.threads,
                geometry.shared_bytes,
                arguments,
                label,
                self.aside,
                geometry.cluster,
                geometry.together,
            )
        )
