# SPDX-License-Identifier: GPL-3.0-or-later
"""The exception for reading, selecting heads in, or writing a network."""

from __future__ import annotations

from protocol.common.printing import ReportedError


class NetworkError(ReportedError):
    """A network file is unusable. The message names the field at fault and the remedy."""
