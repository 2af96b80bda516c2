# SPDX-License-Identifier: GPL-3.0-or-later
"""What a vendor's library of matrix products looks like to the rest, and what each of them fuses.

`cublaslt.py`, `hipblaslt.py` and `hipblas.py` implement it, as siblings. A device may offer several at once:
tuning measures all of them against each other and our own kernel, and `tiles.Choice` names the winner.

Row-major out [m, n] = a [m, k] b [n, k]^T is, in the libraries' column-major terms, out^T = op(b) a with
op(b) transposed: their matrices "A" and "B" are our b and a, and their m and n are our n and m.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from evaluator.gpu.blas.product import Product
from evaluator.gpu.driver.device import DeviceError
from evaluator.network.spec import Activation


class LibraryGivenUp(DeviceError):  # noqa: N818 - named for what happened
    """A library that choices were already made for does not return any more: choose everything again."""


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What a library does in the pass of the product itself; the rest takes a pass of kernels/rows.hip."""

    bias: bool
    residual: bool
    activations: frozenset[Activation]


EPILOGUES = {
    "cuBLASLt": Epilogue(True, True, frozenset({Activation.RELU})),
    # No lc0 network has its GELU or its clamps, and its sigmoid goes without a bias.
    "hipBLASLt": Epilogue(True, True, frozenset({Activation.RELU, Activation.SWISH})),
    "hipBLAS": Epilogue(False, False, frozenset()),
}
"""What each library fuses, by its name."""


@dataclass(frozen=True, slots=True)
class LibraryProduct:
    """out [m, n] = activation(a [m, k] b [n, k]^T + bias? + residual?), row strides lda and ldo.

    bias, residual and activation: only what the library's Epilogue has.
    """

    m: int
    n: int
    k: int
    lda: int
    ldo: int
    bias: bool
    residual: bool
    activation: Activation = Activation.NONE


@dataclass(frozen=True, slots=True)
class Operands:
    """Where the matrices of a product lie, as addresses on the device. 0 for a bias or a residual that it has
    not."""

    a: int
    b: int
    bias: int
    residual: int
    out: int


def library_product(product: Product, library: str, *, fused: bool, lda: int, ldo: int) -> LibraryProduct:
    """The part of a product that a library computes. fused: with the activation, if it has it."""
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
    """A library in one precision on the calling thread's device. Calls come from one thread at a time.

    name: the key into EPILOGUES. version: in words. workspace: bytes that `multiply` may use, for each
    stream. warms_up: the first call of an algorithm loads code, which must not happen during a capture.
    abandoned: a call of it does not return. beside: several of its products may compute at the same time;
    False where they share memory of the library's own.
    """

    name: str
    version: str
    workspace: int
    warms_up: bool = False
    abandoned: bool = False
    beside: bool = False

    @abstractmethod
    def algorithms(self, product: LibraryProduct) -> list[bytes]:
        """The library's own best guesses, best first; empty if it cannot do it. They mean the same to every
        instance of the same version."""

    @abstractmethod
    def multiply(
        self, product: LibraryProduct, algorithm: bytes, operands: Operands, *, workspace: int, stream: int
    ) -> None:
        """Queue a product. workspace: the address of memory that nothing else uses meanwhile; stream: its
        handle. Raises DeviceError."""

    def abandon(self) -> None:
        """A call does not return, and may be in the library for ever: it is never called again."""
        self.abandoned = True

    def close(self) -> None:
        """Let go of the library's handle, unless it is abandoned. Idempotent."""
        if not self.abandoned:
            self.abandoned = True
            self._destroy()

    def _destroy(self) -> None:  # noqa: B027 - cuBLASLt's handle dies with the context
        """Destroy the handle; called once at most."""
