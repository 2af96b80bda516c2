# SPDX-License-Identifier: GPL-3.0-or-later
"""The backend of a service that a benchmark measures: tuned before it serves, not while it is measured."""

from __future__ import annotations

TUNED = ("auto", "gpu")


def tuned(backend: str) -> str:
    """A backend's name and options, with `tuning=before` where it has that option and does not say it."""
    name, _, options = backend.partition(":")
    if name not in TUNED or "tuning=" in options:
        return backend
    return f"{name}:{','.join(filter(None, [options, 'tuning=before']))}"
