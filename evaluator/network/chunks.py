# SPDX-License-Identifier: GPL-3.0-or-later
"""Work on large arrays block by block, on all cores: numpy does not hold the interpreter's lock meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

T = TypeVar("T")

_BLOCK = 1 << 17
"""Values of a block: what a core's cache holds. A large network has 2 * 10^8 of them."""


def by_blocks(count: int, work: Callable[[slice], T]) -> list[T]:
    """What `work` returns for the slices that `count` values fall into, in their order."""
    blocks = [slice(start, min(start + _BLOCK, count)) for start in range(0, count, _BLOCK)]
    if len(blocks) < 2:
        return [work(block) for block in blocks]
    return list(_threads().map(work, blocks))


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(8, os.cpu_count() or 1), "blocks")
