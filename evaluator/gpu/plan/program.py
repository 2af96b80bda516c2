# SPDX-License-Identifier: GPL-3.0-or-later
"""A network as launches: plain data, made by `plan.py` for one batch size and run by `executor.py`.

Nothing here knows a device or an address: a launch names the buffers and weights it works on, and the
executor puts the addresses in when it captures the program as a graph.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, TypeAlias

from numpy.typing import NDArray

from evaluator.gpu.blas.library import LibraryProduct
from evaluator.gpu.driver.compiler import KernelKey
from evaluator.gpu.driver.device import Box
from evaluator.network.e4m3 import E4m3Inputs
from evaluator.network.spec import LayerNorm


class PlanError(Exception):
    """The kernels cannot run this network; the message says what is in the way."""


class Space(Enum):
    """Where a buffer lies."""

    WEIGHTS = "weights"  # on the device, written once; counters, too, which kernels leave as they were
    WORK = "work"  # on the device, between launches
    EXCHANGE = "exchange"  # the batch's own inputs and outputs, named and laid out as in protocol.batch


@dataclass(frozen=True, slots=True)
class Buffer:
    """A named piece of memory."""

    space: Space
    name: str


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A buffer that a kernel loads in boxes, by NVIDIA's tensor memory accelerator."""

    buffer: Buffer
    box: Box


@dataclass(frozen=True, slots=True)
class Table:
    """An array on the device of 8 bytes a word: addresses, int64, and float32 in a word's lower half."""

    name: str
    words: tuple[Buffer | int | float | None, ...]


Argument: TypeAlias = Buffer | TensorMap | Table | int | float | None
"""A kernel's argument: an address, a tensor map by value, int32, float32, or a null pointer."""


@dataclass(frozen=True, slots=True)
class LeftNorm:
    """A layer norm that is left to those who read a matrix (kernels/row_norms.h). sums: of each part of its
    rows' columns, float32 [parts, rows, 2]. name: of the norm's weights."""

    norm: LayerNorm
    name: str
    sums: Buffer
    parts: int


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows of elements: `width` of them used, `stride` apart (a whole number of chunks, padded with zeros or
    with anything that later weights of zero take out).

    segment: if not 0, a row is a whole board: the `segment` elements from `offset` on of each of 64 rows that
    are `stride` apart; the width is 64 * segment. inputs: if given, an element is a pair of e4m3
    numbers, so rounded. rounded: the same matrix in such
    pairs, where there is one. norm: if given, the matrix is what that norm makes of these rows.
    """

    buffer: Buffer
    rows: int
    width: int
    stride: int
    segment: int = 0
    offset: int = 0
    inputs: E4m3Inputs | None = None
    rounded: Matrix | None = None
    norm: LeftNorm | None = None

    @property
    def left_norm(self) -> LayerNorm | None:
        """The norm that is left to who reads it, if one is."""
        return None if self.norm is None else self.norm.norm

    def with_rows(self, rows: int) -> Matrix:
        """The same memory with another number of rows."""
        stride = self.rows * self.stride // rows
        return replace(self, rows=rows, width=stride, stride=stride, rounded=None)


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel. label: what it computes, for profiles. aside: it belongs to the second branch of work.

    cluster: if not 0, blocks come in clusters of so many and stay, each taking part after part of the work:
    the grid is the most that there is work for, and no more are started than are resident at once.
    together: the number of blocks is a multiple of it, as so many wait for each other.
    cooperative: all blocks wait for each other, so that all must be resident at once.
    """

    kernel: KernelKey
    grid: tuple[int, int, int]
    threads: int
    shared_bytes: int
    arguments: tuple[Argument, ...]
    label: str
    aside: bool = False
    cluster: int = 0
    together: int = 1
    cooperative: bool = False


@dataclass(frozen=True, slots=True)
class LibraryStep:
    """A matrix product by a vendor's library, named; bias and residual where the product has them."""

    library: str
    product: LibraryProduct
    algorithm: bytes
    a: Buffer
    weights: Buffer
    bias: Buffer | None
    residual: Buffer | None
    out: Buffer
    label: str
    aside: bool = False


class Branch(Enum):
    """Where a second branch of work, that may run beside the first, begins and ends."""

    FORK = "fork"
    JOIN = "join"


Step: TypeAlias = Launch | LibraryStep | Branch


@dataclass(slots=True)
class Program:
    """Everything for one batch size.

    work: bytes of each buffer between launches. weights: arrays by name, as they go to the device. written:
    those of them that kernels write to, and leave as they found them: what computes at the same time needs
    copies of its own.
    """

    positions: int
    steps: list[Step] = field(default_factory=list)
    work: dict[str, int] = field(default_factory=dict)
    weights: dict[str, NDArray[Any]] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)

    def kernels(self) -> dict[tuple[KernelKey, int], None]:
        """Every kernel with its dynamic shared memory, in order of first use."""
        launches = (step for step in self.steps if isinstance(step, Launch))
        return {(launch.kernel, launch.shared_bytes): None for launch in launches}

    def libraries(self) -> set[str]:
        """The names of the libraries that compute steps of it."""
        return {step.library for step in self.steps if isinstance(step, LibraryStep)}
