# SPDX-License-Identifier: GPL-3.0-or-later
"""onnxruntime, kept from reporting to its maker: every other module imports it from here.

The official wheels have a telemetry client. As soon as onnxruntime is imported it writes an identifier and a
queue of events to `.cache/Microsoft` in the user's home, and some seconds later it sends them off. Only the
environment variable keeps it from that, and only if it is set before the import:
`onnxruntime.disable_telemetry_events()` comes too late. A value that the user has set stays: one who writes
`ORT_DISABLE_TELEMETRY=0` wants to report.
"""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime

__all__ = ["onnxruntime"]
