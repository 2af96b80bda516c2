# SPDX-License-Identifier: GPL-3.0-or-later
"""Opening hipBLAS and hipBLASLt in tests, where their bindings are installed."""

import importlib

import pytest

from evaluator.backends.gpu.blas.library import Library
from evaluator.backends.gpu.driver.target import Precision
from tests.hip_runtime import blas_standin

_CLASSES = {"hipBLAS": "HipBlas", "hipBLASLt": "HipBlasLt"}


def require() -> None:
    """Skips the calling test where the stand-ins cannot be used."""
    reason = blas_standin.unavailable()
    if reason is not None:
        pytest.skip(reason)


def opened(name: str, precision: Precision) -> Library:
    """The library of that name."""
    library: Library = getattr(
        importlib.import_module(f"evaluator.backends.gpu.blas.{name.lower()}"), _CLASSES[name]
    )(precision)
    return library
