# SPDX-License-Identifier: GPL-3.0-or-later
"""The functions of hip-python that amd.py calls, for Windows, for which there is no hip-python.

AMD's display driver installs the HIP runtime in System32, without a compiler. As in hip-python 10, a function
takes the values that the runtime reads, and returns the status and the values that it writes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

from evaluator.backends.gpu.driver.shipped import ARCHIVE

LIBRARIES = {"amdhip64_7.dll": 7, "amdhip64_6.dll": 6}
"""Names of the runtime, newest first, and their major versions. Older ones describe devices otherwise."""

_SYSTEM32_ONLY = 0x800
"""LOAD_LIBRARY_SEARCH_SYSTEM32."""

_TYPES: dict[str, Any] = {
    "i": ctypes.c_int,
    "u": ctypes.c_uint,
    "q": ctypes.c_ulonglong,
    "z": ctypes.c_size_t,
    "p": ctypes.c_void_p,
    "f": ctypes.c_float,
}

_SIGNATURES = {
    "hipEventCreateWithFlags": "Pu",
    "hipEventDestroy": "p",
    "hipEventElapsedTime": "Fpp",
    "hipEventRecord": "pp",
    "hipEventSynchronize": "p",
    "hipFree": "p",
    "hipGetDeviceCount": "I",
    "hipGetDevicePropertiesR0600": "pi",
    "hipGraphDestroy": "p",
    "hipGraphExecDestroy": "p",
    "hipGraphInstantiateWithFlags": "Ppq",
    "hipGraphLaunch": "pp",
    "hipHostFree": "p",
    "hipHostGetDevicePointer": "Ppu",
    "hipHostMalloc": "Pzu",
    "hipMalloc": "Pz",
    "hipMemcpy": "ppzi",
    "hipMemcpyAsync": "ppzip",
    "hipMemGetInfo": "ZZ",
    "hipModuleGetFunction": "Ppp",
    "hipModuleLaunchKernel": "puuuuuuuppp",
    "hipModuleLoadData": "Pp",
    "hipModuleUnload": "p",
    "hipRuntimeGetVersion": "I",
    "hipSetDevice": "i",
    "hipStreamBeginCapture": "pi",
    "hipStreamCreateWithFlags": "Pu",
    "hipStreamDestroy": "p",
    "hipStreamEndCapture": "pP",
    "hipStreamIsCapturing": "pI",
    "hipStreamWaitEvent": "ppu",
}
"""Types of the parameters by function, from ROCm's hip_runtime_api.h: capitals are pointers to results."""


hipMemcpyKind = SimpleNamespace(hipMemcpyHostToDevice=1, hipMemcpyDeviceToHost=2)  # noqa: N816 - as in hip-python
hipStreamCaptureMode = SimpleNamespace(hipStreamCaptureModeThreadLocal=1)  # noqa: N816


class hipError_t(int):  # noqa: N801
    """A status. name: the runtime's."""

    @property
    def name(self) -> str:
        function = library().hipGetErrorName
        function.restype = ctypes.c_char_p
        return str(function(int(self)).decode())


class hipDeviceProp_t(ctypes.Structure):  # noqa: N801
    """hipDeviceProp_tR0600, as far as amd.py reads it. Its offsets are the same since ROCm 6."""

    _fields_ = (
        ("name", ctypes.c_char * 256),
        ("_uuids", ctypes.c_char * 32),
        ("totalGlobalMem", ctypes.c_size_t),
        ("_limits", ctypes.c_char * 52),
        ("clockRate", ctypes.c_int),
        ("_more_limits", ctypes.c_char * 36),
        ("multiProcessorCount", ctypes.c_int),
        ("_timeout", ctypes.c_int),
        ("integrated", ctypes.c_int),
        ("_flags", ctypes.c_char * 760),
        ("gcnArchName", ctypes.c_char * 256),
        ("_rest", ctypes.c_char * 56),
    )


@cache
def library() -> ctypes.CDLL:
    """Return the runtime. Raises RuntimeError, as hip-python does for a missing library."""
    for name in LIBRARIES:
        try:
            return ctypes.CDLL(name, winmode=_SYSTEM32_ONLY)
        except OSError:
            continue
    raise RuntimeError(f"neither {' nor '.join(LIBRARIES)} is in System32: install AMD's display driver")


def hipGetDeviceProperties(index: int) -> tuple[hipError_t, hipDeviceProp_t]:  # noqa: N802
    """Return the status and a device's properties."""
    properties = hipDeviceProp_t()
    status, *_ = _call("hipGetDevicePropertiesR0600", ctypes.addressof(properties), index)
    return status, properties


def hipModuleLaunchKernel(*given: Any) -> tuple[Any, ...]:  # noqa: N802
    """Queue a kernel. The last argument has its arguments without gaps between them."""
    *geometry, arguments = given
    block = b"".join(map(bytes, arguments))
    size = ctypes.c_size_t(len(block))
    pointer, length, end = 1, 2, 3  # HIP_LAUNCH_PARAM_...
    start = ctypes.cast(ctypes.c_char_p(block), ctypes.c_void_p).value
    extra = (ctypes.c_void_p * 5)(pointer, start, length, ctypes.addressof(size), end)
    return _call("hipModuleLaunchKernel", *geometry, ctypes.addressof(extra))


def _call(name: str, *given: Any) -> tuple[Any, ...]:
    """Return a function's status and results."""
    function, types = _function(name)
    results = [kind() for letter, kind in types if letter.isupper()]
    unwritten, unread = iter(results), iter(given)
    arguments = [ctypes.byref(next(unwritten)) if letter.isupper() else next(unread) for letter, _ in types]
    status = hipError_t(function(*arguments))
    return status, *(result.value for result in results)


@cache
def _function(name: str) -> tuple[Callable[..., int], Sequence[tuple[str, Any]]]:
    function = getattr(library(), name, None)
    if function is None:
        raise RuntimeError(f"{library()._name} has no such function: update the display driver")
    types = [(letter, _TYPES[letter.lower()]) for letter in _SIGNATURES[name]]
    function.argtypes = [ctypes.POINTER(kind) if letter.isupper() else kind for letter, kind in types]
    return function, types


def hiprtcVersion() -> tuple[Any, ...]:  # noqa: N802
    """Raise RuntimeError: kernels cannot be compiled."""
    raise RuntimeError(f"AMD's display driver has no compiler; {ARCHIVE} of the release has compiled kernels")


@cache
def __getattr__(name: str) -> Callable[..., tuple[Any, ...]]:
    if name not in _SIGNATURES:
        raise AttributeError(name)

    def function(*given: Any) -> tuple[Any, ...]:
        return _call(name, *given)

    function.__name__ = name
    return function
