# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests start programs that are to be interrupted."""

from __future__ import annotations

import signal

# A shell starts background jobs with the interrupt ignored, and programs inherit that: those that tests start
# are to be interrupted.
signal.signal(signal.SIGINT, signal.default_int_handler)
