"""Which of the vendors' libraries work with a device, and why one that should does not."""

from __future__ import annotations

import importlib

from evaluator.gpu.blas.library import Library
from evaluator.gpu.driver.device import DeviceError, DeviceInfo
from evaluator.gpu.driver.target import Precision

_LIBRARIES = {
    "amd": {"hipBLASLt": ("hipblaslt", "HipBlasLt"), "hipBLAS": ("hipblas", "HipBlas")},
    "nvidia": {"cuBLASLt": ("cublaslt", "CublasLt")},
}
"""By vendor, and by the library's name: the module and class that drive it."""


def open_libraries(info: DeviceInfo, precision: Precision) -> tuple[tuple[Library, ...], dict[str, str]]:
    """The vendor's libraries for the device that is the calling thread's, and by name why one cannot be used.
    Never raises: our own kernels can do everything."""
    libraries: list[Library] = []
    problems: dict[str, str] = {}
    for name, (module, kind) in _LIBRARIES.get(info.vendor, {}).items():
        try:
            made = getattr(importlib.import_module(f"evaluator.gpu.blas.{module}"), kind)
            libraries.append(made(precision))
        except DeviceError as error:
            problems[name] = str(error)
        except ImportError as error:
            problems[name] = f"its binding is missing: pip install 'hip-python[libraries]>=10' ({error})"
    return tuple(libraries), problems
