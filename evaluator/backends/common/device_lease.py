# SPDX-License-Identifier: GPL-3.0-or-later
"""Leases of a device that serves requests, for measurements in the meantime."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeAlias

DeviceLease: TypeAlias = Callable[[], AbstractContextManager[None]]
"""Context manager factory. Entering waits for the device; requests wait while the context lasts, which should
be a few milliseconds. Raises Stopped if the device or network is no longer served."""


class Stopped(Exception):  # noqa: N818 - named for what happened
    """The device, or the network on it, is no longer served."""


def exclusive_lease() -> AbstractContextManager[None]:
    """A DeviceLease for a device without other users."""
    return nullcontext()
