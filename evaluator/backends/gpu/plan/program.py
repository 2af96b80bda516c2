# SPDX-License-Identifier: GPL-3.0-or-later
"""A network as launches: plain data, made by `plan.py` for one batch size and run by `executor.py`.

It contains no device or address. A launch names its buffers and weights, and the executor inserts the
addresses when it captures the program as a graph.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, TypeAlias

from numpy.typing import NDArray

from evaluator.backends.gpu.blas.library import LibraryProduct
from evaluator.backends.gpu.driver.compiler import KernelKey
from evaluator.backends.gpu.driver.device import Box
from evaluator.network.e4m3 import E4m3Inputs
from evaluator.network.spec import LayerNorm


class PlanError(Exception):
    """The kernels cannot run this network. The message has the reason."""


class Space(Enum):
    """The memory space of a buffer."""

    WEIGHTS = "weights"  # on the device, written once; also counters, which kernels reset
    WORK = "work"  # on the device, between launches
    EXCHANGE = "exchange"  # the batch's own inputs and outputs, named and laid out as in protocol.batch


@dataclass(frozen=True, slots=True)
class Buffer:
    """A named piece of memory."""

    space: Space
    name: str


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A buffer that a kernel loads in boxes with NVIDIA's tensor memory accelerator."""

    buffer: Buffer
    box: Box


@dataclass(frozen=True, slots=True)
class WordTable:
    """An array on the device with 8 bytes per word: addresses, int64, and float32 in a word's lower half."""

    name: str
    words: tuple[Buffer | int | float | None, ...]


Argument: TypeAlias = Buffer | TensorMap | WordTable | int | float | None
"""A kernel's argument: an address, a tensor map by value, int32, float32, or a null pointer."""


@dataclass(frozen=True, slots=True)
class LeftNorm:
    """A layer norm that is left to the readers of a matrix (kernels/row_norms.h). sums: of each part of its
    rows' columns, float32 [parts, rows, 2]. name: of the norm's weights."""

    norm: LayerNorm
    name: str
    sums: Buffer
    parts: int


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows of `width` elements, `stride` apart (a whole number of chunks). The padding is zero, or multiplied
    by zero weights later.

    segment: if not 0, a row is a whole board: the `segment` elements from `offset` on of each of 64 rows that
    are `stride` apart; the width is 64 * segment. inputs: if given, an element is a pair of e4m3 numbers with
    that rounding. rounded: the same matrix in such pairs, if it exists. norm: if given, the matrix is that
    norm of these rows.
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
        """The norm that is left to the readers, if any."""
        return None if self.norm is None else self.norm.norm

    def with_rows(self, rows: int) -> Matrix:
        """Return the same memory with another number of rows."""
        stride = self.rows * self.stride // rows
        return replace(self, rows=rows, width=stride, stride=stride, rounded=None)


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel. label: what it computes, for profiles. aside: it belongs to the second branch of work.

    cluster: if not 0, blocks form clusters of this size and are persistent, each doing part after part of the
    work. The grid is the maximum useful number, of which only resident blocks are started. together: the
    number of blocks is a multiple of it, because that many wait for each other. cooperative: all blocks wait
    for each other, so all must be resident at once.
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
    """A matrix product by a vendor's library; bias and residual if the product has them."""

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
    """Start and end of the second branch of work, which may run concurrently with the first."""

    FORK = "fork"
    JOIN = "join"


Step: TypeAlias = Launch | LibraryStep | Branch


@dataclass(slots=True)
class Program:
    """All launches of one batch size.

    work: bytes of each buffer between launches. weights: arrays by name, as stored on the device. written:
    arrays that kernels write and restore; concurrent programs need copies of their own.
    """

    positions: int
    steps: list[Step] = field(default_factory=list)
    work: dict[str, int] = field(default_factory=dict)
    weights: dict[str, NDArray[Any]] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)

    def kernels(self) -> dict[tuple[KernelKey, int], None]:
        """Return every kernel with its dynamic shared memory, in order of first use."""
        launches = (step for step in self.steps if isinstance(step, Launch))
        return {(launch.kernel, launch.shared_bytes): None for launch in launches}

    def libraries(self) -> set[str]:
        """Return the names of the libraries used."""
        return {step.library for step in self.steps if isinstance(step, LibraryStep)}
