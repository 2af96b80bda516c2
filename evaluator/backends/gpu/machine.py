# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts about the machine for a report: versions, settings and GPUs, without personal data."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from protocol.common.folders import user_names
from protocol.common.version import __version__

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
"""Variables that affect a GPU; no others are read."""

_VERSION_FILES = {
    "rocm": "{rocm}/.info/version",
    "amdgpu": "/sys/module/amdgpu/version",
    "nvidia": "/sys/module/nvidia/version",
}

_PATH = re.compile(r"(?:[A-Za-z]:)?(?:[\\/]+[^\s\\/:;,'\"()]+){2,}")
"""Matches a path of two or more parts, as in error messages."""

_SHORTEST_NAME = 3
"""Minimum length of user and host names to be removed; shorter ones occur in too many words."""


def machine_facts() -> dict[str, Any]:
    """Return the system, the processor and versions. May contain paths: see `impersonal`."""
    rocm = os.environ.get("ROCM_PATH", "/opt/rocm")
    return {
        "wavefront": __version__,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "processor": _processor(),
        "threads": os.cpu_count() or 1,
        "packages": {name: version for name in _PACKAGES if (version := _installed(name))},
        "versions": {
            name: text
            for name, path in _VERSION_FILES.items()
            if (text := _text(path.format(rocm=rocm)).partition("\n")[0].strip())
        },
        "environment": {name: os.environ[name] for name in _VARIABLES if name in os.environ},
    }


def impersonal(value: Any, names: frozenset[str] | None = None) -> Any:
    """Return the data with user and host names removed from all strings, and paths reduced to their last
    part. names: names to remove (default: those of this process)."""
    if names is None:
        found = {socket.gethostname(), socket.gethostname().partition(".")[0], *user_names()}
        names = frozenset(name for name in found if len(name) >= _SHORTEST_NAME and name != "root")
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


def _text(path: str) -> str:
    try:
        return Path(path).read_text("utf-8", errors="replace")
    except OSError:
        return ""
