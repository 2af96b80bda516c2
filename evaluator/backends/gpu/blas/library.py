# SPDX-License-Identifier: GPL-3.0-or-later
"""The interface of a vendor's matrix product library, and what each library fuses.

`cublaslt.py`, `hipblaslt.py` and `hipblas.py` implement it. A device may have several: tuning compares all of
them with each other and with our own kernels, and `tiles.Choice` names the winner.

Row-major out [m, n] = a [m, k] b [n, k]^T is out^T = op(b) a in the libraries' column-major terms, with op(b)
transposed. So their matrices "A" and "B" are our b and a, and their m and n are our n and m.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.driver.device import DeviceError
from evaluator.network.spec import Activation


class LibraryGivenUp(DeviceError):  # noqa: N818 - named for what happened
    """A library in use no longer returns: all choices must be made again."""


@dataclass(frozen=True, slots=True)
class LibraryEpilogue:
    """What a library fuses into the product; the rest needs a pass of kernels/rows.hip."""

    bias: bool
    residual: bool
    activations: frozenset[Activation]


EPILOGUES = {
    "cuBLASLt": LibraryEpilogue(True, True, frozenset({Activation.RELU})),
    # No lc0 network uses its GELU or clamps, and its sigmoid supports no bias.
    "hipBLASLt": LibraryEpilogue(True, True, frozenset({Activation.RELU, Activation.SWISH})),
    "hipBLAS": LibraryEpilogue(False, False, frozenset()),
}
"""What each library fuses, by name."""


@dataclass(frozen=True, slots=True)
class LibraryProduct:
    """out [m, n] = activation(a [m, k] b [n, k]^T + bias? + residual?), row strides lda and ldo.

    bias, residual and activation: only if the library's epilogue has them.
    """

    m: int
    n: int
    k: int
    lda: int
    ldo: int
    bias: bool
    residual: bool
    activation: Activation = Activation.NONE

    @property
    def matrices(self) -> tuple[tuple[int, int, int], ...]:
        """Rows, columns and stride of the library's matrices "A", "B" and "C"."""
        return (self.k, self.n, self.k), (self.k, self.m, self.lda), (self.n, self.m, self.ldo)


@dataclass(frozen=True, slots=True)
class Operands:
    """Device addresses of a product's matrices. 0 for a bias or residual that it does not have."""

    a: int
    b: int
    bias: int
    residual: int
    out: int


def library_product(product: Product, library: str, *, fused: bool, lda: int, ldo: int) -> LibraryProduct:
    """Return a library's part of a product. fused: including the activation, if the library has it."""
    epilogue = EPILOGUES[library]
    own = fused and product.activation in epilogue.activations
    return LibraryProduct(
        m=product.m,
        n=product.n,
        k=product.k,
        lda=lda,
        ldo=ldo,
        bias=product.bias and epilogue.bias,
        residual=product.residual and epilogue.residual,
        activation=product.activation if own else Activation.NONE,
    )


class Library(ABC):
    """A library in one precision on the calling thread's device. Used by one thread at a time.

    name: key in EPILOGUES. version: in words. workspace: bytes for `multiply` per stream. warms_up: the first
    call of an algorithm loads code, which must not happen during a capture. abandoned: a call does not
    return. beside: its products may compute concurrently; False if they share memory of the library.
    """

    name: str
    version: str
    workspace: int
    warms_up: bool = False
    abandoned: bool = False
    beside: bool = False

    @abstractmethod
    def algorithms(self, product: LibraryProduct) -> list[bytes]:
        """Return the library's best algorithms, best first; empty if it cannot compute the product. They are
        valid for every instance of the same version."""

    @abstractmethod
    def multiply(
        self, product: LibraryProduct, algorithm: bytes, operands: Operands, *, workspace: int, stream: int
    ) -> None:
        """Queue a product. workspace: address of memory for its exclusive use. stream: handle. Raises
        DeviceError."""

    def abandon(self) -> None:
        """Note that a call does not return, possibly ever, so that the library is never called again."""
        self.abandoned = True

    def close(self) -> None:
        """Release the library's handle, unless it is abandoned. Idempotent."""
        if not self.abandoned:
            self.abandoned = True
            self._destroy()

    def _destroy(self) -> None:  # noqa: B027 - cuBLASLt's handle dies with the context
        """Destroy the handle; called at most once."""
