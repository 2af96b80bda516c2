# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's cuBLASLt, through ctypes on its C interface.

The enumerators are those of cublasLt.h (CUDA 12 and 13); library.py explains the mapping of matrices.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from evaluator.backends.gpu.blas.library import Library, LibraryProduct, Operands
from evaluator.backends.gpu.driver.device import DeviceError
from evaluator.backends.gpu.driver.target import Precision
from evaluator.network.spec import Activation

_WORKSPACE_BYTES = 32 << 20
"""Workspace per stream; NVIDIA's recommendation for Hopper."""

_COMPUTE_32F, _REAL_32F = 68, 0
_TYPES = {Precision.FP16: 2, Precision.BF16: 14}
_TRANSPOSE_A, _EPILOGUE, _BIAS_POINTER = 3, 7, 8  # cublasLtMatmulDescAttributes_t
_OP_T = 1
_EPILOGUE_DEFAULT, _EPILOGUE_RELU, _EPILOGUE_BIAS = 1, 2, 4
_PREFERENCE_WORKSPACE = 1
_ALGORITHM_BYTES = 64
_ALGORITHMS = 4
_WHEEL_PATTERNS = (
    "cu*/lib/libcublasLt.so.*",
    "cublas/lib/libcublasLt.so.*",
    "cu*/bin/**/cublasLt64_*.dll",
    "cublas/bin/cublasLt64_*.dll",
)


class _Heuristic(ctypes.Structure):
    _fields_ = (
        ("algorithm", ctypes.c_uint8 * _ALGORITHM_BYTES),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


class CublasLt(Library):
    """The library in the calling thread's CUDA context."""

    name = "cuBLASLt"
    workspace = _WORKSPACE_BYTES
    beside = True

    def __init__(self, precision: Precision) -> None:
        """Raises DeviceError if the library is missing or does not work; then only our own kernels are
        used."""
        if precision not in _TYPES:
            raise DeviceError(f"cuBLASLt is not used for {precision.value}")
        self._type = _TYPES[precision]
        self._library = _load()
        self._handle = ctypes.c_void_p()
        self._call("cublasLtCreate", ctypes.byref(self._handle))
        self._library.cublasLtGetVersion.restype = ctypes.c_size_t
        self.version = f"cuBLASLt {self._library.cublasLtGetVersion()}"
        self._alpha, self._zero, self._one = (ctypes.c_float(value) for value in (1.0, 0.0, 1.0))

    def algorithms(self, product: LibraryProduct) -> list[bytes]:
        preference = ctypes.c_void_p()
        self._call("cublasLtMatmulPreferenceCreate", ctypes.byref(preference))
        workspace = ctypes.c_uint64(_WORKSPACE_BYTES)
        self._set("cublasLtMatmulPreferenceSetAttribute", preference, _PREFERENCE_WORKSPACE, workspace)
        results = (_Heuristic * _ALGORITHMS)()
        found = ctypes.c_int()
        with self._described(product, bias=256) as (operation, a, b, c):
            status = self._library.cublasLtMatmulAlgoGetHeuristic(
                self._handle, operation, a, b, c, c, preference, _ALGORITHMS, results, ctypes.byref(found)
            )
        self._call("cublasLtMatmulPreferenceDestroy", preference)
        if status:
            return []
        return [bytes(each.algorithm) for each in results[: found.value] if each.state == 0]

    def multiply(
        self, product: LibraryProduct, algorithm: bytes, operands: Operands, *, workspace: int, stream: int
    ) -> None:
        chosen = (ctypes.c_uint8 * _ALGORITHM_BYTES).from_buffer_copy(algorithm)
        added = operands.residual if product.residual else operands.out
        with self._described(product, bias=operands.bias) as (operation, layout_a, layout_b, layout_c):
            self._call(
                "cublasLtMatmul",
                self._handle,
                operation,
                ctypes.byref(self._alpha),
                ctypes.c_void_p(operands.b),
                layout_a,
                ctypes.c_void_p(operands.a),
                layout_b,
                ctypes.byref(self._one if product.residual else self._zero),
                ctypes.c_void_p(added),
                layout_c,
                ctypes.c_void_p(operands.out),
                layout_c,
                ctypes.byref(chosen),
                ctypes.c_void_p(workspace),
                ctypes.c_size_t(_WORKSPACE_BYTES),
                ctypes.c_void_p(stream),
            )

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise DeviceError(f"{name} failed with cuBLAS status {status}")

    def _set(self, name: str, descriptor: ctypes.c_void_p, attribute: int, value: Any) -> None:
        self._call(name, descriptor, attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value)))

    @contextmanager
    def _described(self, product: LibraryProduct, *, bias: int) -> Iterator[tuple[ctypes.c_void_p, ...]]:
        """Context manager for a product's descriptors: operation, matrices "A", "B" and "C"."""
        with ExitStack() as stack:
            operation = ctypes.c_void_p()
            self._call("cublasLtMatmulDescCreate", ctypes.byref(operation), _COMPUTE_32F, _REAL_32F)
            stack.callback(self._call, "cublasLtMatmulDescDestroy", operation)
            name = "cublasLtMatmulDescSetAttribute"
            self._set(name, operation, _TRANSPOSE_A, ctypes.c_int32(_OP_T))
            epilogue = (_EPILOGUE_RELU if product.activation is Activation.RELU else 0) | (
                _EPILOGUE_BIAS if product.bias else 0
            )
            self._set(name, operation, _EPILOGUE, ctypes.c_uint32(epilogue or _EPILOGUE_DEFAULT))
            if product.bias:
                self._set(name, operation, _BIAS_POINTER, ctypes.c_void_p(bias))
            layouts = []
            for rows, columns, stride in product.matrices:
                layout = ctypes.c_void_p()
                sizes = ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(stride)
                self._call("cublasLtMatrixLayoutCreate", ctypes.byref(layout), self._type, *sizes)
                stack.callback(self._call, "cublasLtMatrixLayoutDestroy", layout)
                layouts.append(layout)
            yield (operation, *layouts)


def _load() -> ctypes.CDLL:
    tried = []
    for name in _names():
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            tried.append(f"{name} ({error})")
    raise DeviceError("cuBLASLt was not found: pip install nvidia-cublas; tried " + ", ".join(tried))


def _names() -> Iterator[str]:
    """Yield possible paths of the library: in NVIDIA's wheels, then the system's search path."""
    spec = importlib.util.find_spec("nvidia")
    folders = spec.submodule_search_locations if spec is not None else None
    for folder in folders or []:
        for pattern in _WHEEL_PATTERNS:
            yield from (str(path) for path in sorted(Path(folder).glob(pattern), reverse=True))
    yield from ("libcublasLt.so.13", "libcublasLt.so.12", "cublasLt64_13.dll", "cublasLt64_12.dll")
