# SPDX-License-Identifier: GPL-3.0-or-later
"""What a report says of the machine: versions, settings and GPUs, and nothing of who uses it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from protocol.host.folders import user_names
from protocol.host.version import __version__

_PACKAGES = ("hip-python", "rocm-bindings-hip", "cuda-bindings", "nvidia-cuda-nvrtc", "numpy", "onnxruntime")

_VARIABLES = (
    "AMD_LOG_LEVEL",
    "AMD_SERIALIZE_KERNEL",
    "CUDA_VISIBLE_DEVICES",
    "GPU_MAX_HW_QUEUES",
    "HIP_VISIBLE_DEVICES",
    "HSA_ENABLE_SDMA",
    "HSA_OVERRIDE_GFX_VERSION",
    "HSA_XNACK",
    "ROCBLAS_USE_HIPBLASLT",
    "ROCM_PATH",
    "ROCR_VISIBLE_DEVICES",
)
"""Those that change what a GPU does; no others are looked at."""

_VERSION_FILES = {
    "rocm": "{rocm}/.info/version",
    "amdgpu": "/sys/module/amdgpu/version",
    "nvidia": "/sys/module/nvidia/version",
}

_PATH = re.compile(r"(?:[A-Za-z]:)?(?:[\\/]+[^\s\\/:;,'\"()]+){2,}")
"""A path of two parts and more, as in an error message."""

_SHORTEST_NAME = 3
"""Names of users and hosts shorter than this are in too many words to be taken out."""


def machine_facts() -> dict[str, Any]:
    """The system, the processor and versions. As yet with paths: see `impersonal`."""
    rocm = os.environ.get("ROCM_PATH", "/opt/rocm")
    return {
        "wavefront": __version__,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "processor": _processor(),
        "threads": os.cpu_count() or 1,
        "packages": {name: version for name in _PACKAGES if (version := _installed(name))},
        "versions": {
            name: text for name, path in _VERSION_FILES.items() if (text := _line(path.format(rocm=rocm)))
        },
        "environment": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
    }


def impersonal(value: Any, names: frozenset[str] | None = None) -> Any:
    """The same data with the names of user and host taken out of every string, and of paths all but the last
    part. names: to take out; None for those of this process."""
    if names is None:
        names = _personal_names()
    if isinstance(value, Mapping):
        return {impersonal(str(key), names): impersonal(each, names) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [impersonal(each, names) for each in value]
    if not isinstance(value, str):
        return value
    text = _PATH.sub(lambda path: ".../" + re.split(r"[\\/]", path[0])[-1], value)
    for name in sorted(names, key=len, reverse=True):
        text = re.sub(re.escape(name), "...", text, flags=re.IGNORECASE)
    return text


def _personal_names() -> frozenset[str]:
    found = {socket.gethostname(), socket.gethostname().partition(".")[0], *user_names()}
    return frozenset(name for name in found if len(name) >= _SHORTEST_NAME and name != "root")


def _processor() -> str:
    for line in _text("/proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()


def _installed(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _line(path: str) -> str:
    return _text(path).partition("\n")[0].strip()


def _text(path: str) -> str:
    try:
        return Path(path).read_text("utf-8", errors="replace")
    except OSError:
        return ""
