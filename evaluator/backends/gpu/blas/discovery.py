# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the vendors' libraries that work with a device, and the reasons why others do not."""

from __future__ import annotations

import importlib
import json
import logging
from pathlib import Path

from evaluator.backends.common import crashes
from evaluator.backends.common.caching import keep
from evaluator.backends.common.child import ChildEnded, run_in_child
from evaluator.backends.common.crashes import Phase
from evaluator.backends.gpu.blas.library import Library, Operands, library_product
from evaluator.backends.gpu.blas.product import Product
from evaluator.backends.gpu.driver.device import DeviceError, DeviceInfo
from evaluator.backends.gpu.driver.discovery import open_device, subject_of
from evaluator.backends.gpu.driver.target import Precision
from evaluator.network.spec import Activation
from protocol.common.processes import crash_signal

log = logging.getLogger(__name__)

_LIBRARIES = {
    "amd": {"hipBLASLt": ("hipblaslt", "HipBlasLt"), "hipBLAS": ("hipblas", "HipBlas")},
    "nvidia": {"cuBLASLt": ("cublaslt", "CublasLt")},
}
"""Module and class by vendor and library name."""

_SIDE = 64
"""Rows, columns and depth of the trial product."""


def open_libraries(info: DeviceInfo, precision: Precision) -> tuple[tuple[Library, ...], dict[str, str]]:
    """Return the vendor's libraries for a device, and the reasons why others cannot be used, by name.

    The device must be the calling thread's. A program tries a library in a child process first, once per
    version of device, driver and library. Never raises: our own kernels suffice.
    """
    libraries: list[Library] = []
    problems: dict[str, str] = {}
    for name in _LIBRARIES.get(info.vendor, {}):
        subject = library_subject(info, name)
        try:
            if crash := crashes.excluded(subject):
                problems[name] = f"{crash}; {crashes.RETRY}"
                continue
            if problem := _tried(info, precision, name):
                problems[name] = problem
                continue
            with crashes.attempt(subject, Phase.TRYING):
                libraries.append(_made(info, precision, name))
        except DeviceError as error:
            problems[name] = str(error)
        except ImportError as error:
            problems[name] = f"its binding is missing: pip install 'hip-python[libraries]>=10' ({error})"
    return tuple(libraries), problems


def library_subject(info: DeviceInfo, name: str) -> str:
    """Return what a crash in a library is attributed to."""
    return f"{name}|{subject_of(info)}"


def _made(info: DeviceInfo, precision: Precision, name: str) -> Library:
    module, kind = _LIBRARIES[info.vendor][name]
    made: Library = getattr(importlib.import_module(f"evaluator.backends.gpu.blas.{module}"), kind)(precision)
    return made


def _tried(info: DeviceInfo, precision: Precision, name: str) -> str:
    """Try a library in a child process. Returns why it cannot be used; empty if it can. Caches the result."""
    folder = crashes.folder()
    if not crashes.records() or folder is None:
        return ""
    key = f"{library_subject(info, name)}|{precision.value}"
    path = folder / "libraries.json"
    known = _read(path)
    if key in known:
        return known[key]
    try:
        problem = run_in_child(try_library, info, precision, name, echo=False)
    except ChildEnded as ended:
        problem = str(ended)
        log.warning("%s: %s is not used: %s", info.name, name, problem)
        if crash_signal(ended.status) is None:
            return problem  # killed or out of memory, which does not incriminate the library
    keep(path, json.dumps(_read(path) | {key: problem}).encode())
    return problem


def _read(path: Path) -> dict[str, str]:
    try:
        entries = json.loads(path.read_text("utf-8"))
        return {str(key): str(problem) for key, problem in entries.items()}
    except (OSError, ValueError, AttributeError):
        return {}


def try_library(info: DeviceInfo, precision: Precision, name: str) -> str:
    """Multiply with a library. Returns why that failed; empty on success."""
    device = open_device(info)
    try:
        library = _made(info, precision, name)
        product = library_product(
            Product(_SIDE, _SIDE, _SIDE, Activation.NONE, bias=False), name, fused=False, lda=_SIDE, ldo=_SIDE
        )
        size = _SIDE * _SIDE * precision.bytes
        a, b, out, workspace = (device.allocate(each) for each in (size, size, size, library.workspace))
        stream, event = device.create_stream(), device.create_event()
        operands = Operands(a, b, 0, 0, out)
        for algorithm in library.algorithms(product)[:1]:
            library.multiply(product, algorithm, operands, workspace=workspace, stream=int(stream))
        device.record(event, stream)
        device.synchronize(event)
    except DeviceError as error:
        return str(error)
    except ImportError as error:
        return f"its binding is missing: pip install 'hip-python[libraries]>=10' ({error})"
    return ""
