# SPDX-License-Identifier: GPL-3.0-or-later
"""Tunes a measured service's backend before it serves instead of during the measurement."""

from __future__ import annotations

TUNED = ("auto", "gpu")


def tuned(backend: str) -> str:
    """Return a backend's name and options with `tuning=before`, if it has that option and it is not set."""
    name, _, options = backend.partition(":")
    if name not in TUNED or "tuning=" in options:
        return backend
    return f"{name}:{','.join(filter(None, [options, 'tuning=before']))}"
