# SPDX-License-Identifier: GPL-3.0-or-later
"""AMD's hipBLAS (on rocBLAS), through hip-python's bindings.

It has one algorithm per product and fuses nothing. The interface is that of hipBLAS 3 (ROCm 7): hipblasGemmEx
takes hipDataType and hipblasComputeType_t.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from hip import hip, hipblas

from evaluator.backends.gpu.blas.library import Library, LibraryProduct, Operands
from evaluator.backends.gpu.driver.amd import is_capturing, loading
from evaluator.backends.gpu.driver.device import DeviceError
from evaluator.backends.gpu.driver.target import Precision

TYPES = {
    Precision.FP16: hip.hipDataType.HIP_R_16F,
    Precision.BF16: hip.hipDataType.HIP_R_16BF,
    Precision.FP32: hip.hipDataType.HIP_R_32F,
}

_WORKSPACE_BYTES = 32 << 20
"""Workspace that rocBLAS would otherwise allocate itself, possibly during a capture."""


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the value of a binding's function, if any. Raises DeviceError for any status but success, and
    for a missing library or symbol, which only a call detects."""
    try:
        status, *values = function(*arguments)
    except RuntimeError as error:  # raised by hip-python for dlopen and dlsym
        raise DeviceError(str(error)) from error
    if int(status) != 0:
        raise DeviceError(f"{function.__name__} failed with {getattr(status, 'name', status)}")
    return values[0] if values else None


class LoadingLibrary(Library):
    """A library whose first call of an algorithm loads code."""

    warms_up = True

    def __init__(self) -> None:
        self._loaded: set[tuple[LibraryProduct, bytes]] = set()

    def multiply(
        self, product: LibraryProduct, algorithm: bytes, operands: Operands, *, workspace: int, stream: int
    ) -> None:
        """Queue a product. Raises DeviceError also if the first call would be part of a capture."""
        key = product, algorithm
        if key not in self._loaded and is_capturing(stream):
            raise DeviceError(f"{self.name}: the first call of an algorithm must not be captured")
        self._multiply(product, algorithm, operands, workspace, stream)
        self._loaded.add(key)

    @abstractmethod
    def _multiply(
        self, product: LibraryProduct, algorithm: bytes, operands: Operands, workspace: int, stream: int
    ) -> None:
        """Queue a product, like `multiply`."""


class HipBlas(LoadingLibrary):
    """The library on the calling thread's device."""

    name = "hipBLAS"
    workspace = _WORKSPACE_BYTES

    def __init__(self, precision: Precision) -> None:
        """Raises DeviceError if the library is missing or does not work."""
        super().__init__()
        self._type = TYPES[precision]
        self._one, self._zero = np.ones(1, np.float32), np.zeros(1, np.float32)
        with loading():
            self._handle = call(hipblas.hipblasCreate)
        self.version = "hipBLAS"
        if hasattr(hipblas, "hipblasGetVersion"):  # missing in hip-python 7
            version = np.zeros(1, np.int32)
            call(hipblas.hipblasGetVersion, self._handle, version)
            self.version += f" {version[0]}"

    def algorithms(self, product: LibraryProduct) -> list[bytes]:
        return [b"default"]

    def _multiply(
        self, product: LibraryProduct, algorithm: bytes, operands: Operands, workspace: int, stream: int
    ) -> None:
        call(hipblas.hipblasSetStream, self._handle, stream)
        call(hipblas.hipblasSetWorkspace, self._handle, workspace, self.workspace)
        call(
            hipblas.hipblasGemmEx,
            self._handle,
            hipblas.hipblasOperation_t.HIPBLAS_OP_T,
            hipblas.hipblasOperation_t.HIPBLAS_OP_N,
            product.n,
            product.m,
            product.k,
            self._one,
            operands.b,
            self._type,
            product.k,
            operands.a,
            self._type,
            product.lda,
            self._zero,
            operands.out,
            self._type,
            product.ldo,
            hipblas.hipblasComputeType_t.HIPBLAS_COMPUTE_32F,
            hipblas.hipblasGemmAlgo_t.HIPBLAS_GEMM_DEFAULT,
        )

    def _destroy(self) -> None:
        call(hipblas.hipblasDestroy, self._handle)
