# SPDX-License-Identifier: GPL-3.0-or-later
"""AMD's hipBLASLt, through hip-python's bindings (10 and newer).

Sums are float32 for every format. Biases have the elements' format, which all kernels of the library can
read. A residual is passed as beta = 1, before the activation.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
from hip import hip, hipblas, hipblaslt

from evaluator.backends.gpu.blas.hipblas import TYPES, LoadingLibrary, call
from evaluator.backends.gpu.blas.library import LibraryProduct, Operands
from evaluator.backends.gpu.driver.amd import loading
from evaluator.backends.gpu.driver.device import DeviceError
from evaluator.backends.gpu.driver.target import Precision
from evaluator.network.spec import Activation

_WORKSPACE_BYTES = 32 << 20
"""Workspace per stream. The heuristics exclude algorithms that need more."""

_ALGORITHMS = 8
_ATTRIBUTES = hipblaslt.hipblasLtMatmulDescAttributes_t
_EPILOGUES = {
    (Activation.NONE, False): "DEFAULT",
    (Activation.NONE, True): "BIAS",
    (Activation.RELU, False): "RELU",
    (Activation.RELU, True): "RELU_BIAS",
    (Activation.SWISH, False): "SWISH_EXT",
    (Activation.SWISH, True): "SWISH_BIAS_EXT",
}
"""Enumerators of hipblasLtEpilogue_t by activation and bias."""


class HipBlasLt(LoadingLibrary):
    """The library on the calling thread's device."""

    name = "hipBLASLt"
    workspace = _WORKSPACE_BYTES
    # Stream-K kernels of all streams share flags in one buffer of the handle (ROCm/rocm-libraries #10951).
    beside = False

    def __init__(self, precision: Precision) -> None:
        """Raises DeviceError if the library is missing or does not work."""
        super().__init__()
        self._type = TYPES[precision]
        self._one, self._zero = np.ones(1, np.float32), np.zeros(1, np.float32)
        self._algorithm_bytes = hipblaslt.hipblasLtMatmulAlgo_t().c_sizeof()
        with loading():
            self._handle = call(hipblaslt.hipblasLtCreate)
        self.version = f"hipBLASLt {call(hipblaslt.hipblasLtGetVersion, self._handle)}"

    def algorithms(self, product: LibraryProduct) -> list[bytes]:
        results = hipblaslt.hipblasLtMatmulHeuristicResult_t.allocate(_ALGORITHMS)
        with _preference(self.workspace) as preference, self._described(product, bias=256) as described:
            operation, a, b, c = described
            arguments = (self._handle, operation, a, b, c, c, preference, _ALGORITHMS, results)
            try:
                found = call(hipblaslt.hipblasLtMatmulAlgoGetHeuristic, *arguments)
            except DeviceError:  # unsupported products, among others, are not offered
                return []
        return [
            ctypes.string_at(int(results.get_algo(index)), self._algorithm_bytes)
            for index in range(found)
            if int(results.get_state(index)) == 0 and results.get_workspaceSize(index) <= self.workspace
        ]

    def _multiply(
        self, product: LibraryProduct, algorithm: bytes, operands: Operands, workspace: int, stream: int
    ) -> None:
        with self._described(product, bias=operands.bias) as (operation, layout_a, layout_b, layout_c):
            call(
                hipblaslt.hipblasLtMatmul,
                self._handle,
                operation,
                self._one,
                operands.b,
                layout_a,
                operands.a,
                layout_b,
                self._one if product.residual else self._zero,
                operands.residual if product.residual else operands.out,
                layout_c,
                operands.out,
                layout_c,
                bytearray(algorithm),
                workspace,
                self.workspace,
                stream,
            )

    def _destroy(self) -> None:
        call(hipblaslt.hipblasLtDestroy, self._handle)

    @contextmanager
    def _described(self, product: LibraryProduct, *, bias: int) -> Iterator[tuple[Any, ...]]:
        """Context manager for a product's descriptors: operation, matrices "A", "B" and "C"."""
        with ExitStack() as stack:
            operation = call(
                hipblaslt.hipblasLtMatmulDescCreate,
                hipblas.hipblasComputeType_t.HIPBLAS_COMPUTE_32F,
                hip.hipDataType.HIP_R_32F,
            )
            stack.callback(call, hipblaslt.hipblasLtMatmulDescDestroy, operation)
            name = f"HIPBLASLT_EPILOGUE_{_EPILOGUES[product.activation, product.bias]}"
            values: list[tuple[str, int, Any]] = [
                ("TRANSA", int(hipblas.hipblasOperation_t.HIPBLAS_OP_T), np.int32),
                ("TRANSB", int(hipblas.hipblasOperation_t.HIPBLAS_OP_N), np.int32),
                ("EPILOGUE", int(hipblaslt.hipblasLtEpilogue_t[name]), np.uint32),
            ]
            if product.bias:
                values += [
                    ("BIAS_POINTER", bias, np.uint64),
                    ("BIAS_DATA_TYPE", int(self._type), np.int32),
                ]
            for attribute, value, kind in values:
                buffer = np.array([value], kind)
                key = _ATTRIBUTES[f"HIPBLASLT_MATMUL_DESC_{attribute}"]
                call(hipblaslt.hipblasLtMatmulDescSetAttribute, operation, key, buffer, buffer.nbytes)
            layouts = []
            for rows, columns, stride in product.matrices:
                layout = call(hipblaslt.hipblasLtMatrixLayoutCreate, self._type, rows, columns, stride)
                stack.callback(call, hipblaslt.hipblasLtMatrixLayoutDestroy, layout)
                layouts.append(layout)
            yield (operation, *layouts)


@contextmanager
def _preference(workspace: int) -> Iterator[Any]:
    preference = call(hipblaslt.hipblasLtMatmulPreferenceCreate)
    try:
        key = hipblaslt.hipblasLtMatmulPreferenceAttributes_t.HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
        buffer = np.array([workspace], np.uint64)
        call(hipblaslt.hipblasLtMatmulPreferenceSetAttribute, preference, key, buffer, buffer.nbytes)
        yield preference
    finally:
        call(hipblaslt.hipblasLtMatmulPreferenceDestroy, preference)
