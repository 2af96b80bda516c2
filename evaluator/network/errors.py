# SPDX-License-Identifier: GPL-3.0-or-later
"""The one exception that reading, choosing or writing a network raises."""

from __future__ import annotations


class NetworkError(Exception):
    """A network file cannot be used. The message names the file's field at fault and what to do about it."""
