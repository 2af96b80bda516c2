# SPDX-License-Identifier: GPL-3.0-or-later
"""Time on a device that serves requests, lent to who measures on it meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeAlias

DeviceLease: TypeAlias = Callable[[], AbstractContextManager[None]]
"""Waits until the device can be had, and keeps requests from it while the context lasts, which should be a
few milliseconds. Raises Stopped where there will be none any more."""


class Stopped(Exception):  # noqa: N818 - named for what happened
    """The device, or the network on it, is not served any more."""


def exclusive_lease() -> AbstractContextManager[None]:
    """A DeviceLease of a device that nobody else uses."""
    return nullcontext()
