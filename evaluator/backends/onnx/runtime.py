# SPDX-License-Identifier: GPL-3.0-or-later
"""onnxruntime without telemetry. Every other module imports it from here.

The official wheels have a telemetry client. On import, it writes an identifier and an event queue to
`.cache/Microsoft` in the user's home, and sends the events some seconds later. Only the environment variable
prevents that, and only if it is set before the import: `onnxruntime.disable_telemetry_events()` comes too
late. A value set by the user stays: `ORT_DISABLE_TELEMETRY=0` enables the telemetry.
"""

import os
import platform
import sys

if sys.platform == "win32":
    # onnxruntime asks for the system's name. CPython finds it by WMI or a shell, which can take seconds or
    # hang (python/cpython#125315), and then keeps it here.
    _version = sys.getwindowsversion().platform_version
    platform._uname_cache = platform.uname_result(  # type: ignore[attr-defined]
        "Windows",
        "",
        "11" if _version[2] >= 22000 else str(_version[0]),
        ".".join(map(str, _version)),
        os.environ.get("PROCESSOR_ARCHITECTURE", ""),
    )

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime

__all__ = ["onnxruntime"]
