# SPDX-License-Identifier: GPL-3.0-or-later
"""Parallel work on blocks of large arrays, on all cores: numpy releases the GIL meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

T = TypeVar("T")

_BLOCK = 1 << 17
"""Values per block, to fit a core's cache. A large network has 2 * 10^8 values."""


def by_blocks(count: int, work: Callable[[slice], T]) -> list[T]:
    """Call `work` for the blocks of `count` values and return the results in order."""
    blocks = [slice(start, min(start + _BLOCK, count)) for start in range(0, count, _BLOCK)]
    if len(blocks) < 2:
        return [work(block) for block in blocks]
    return list(_threads().map(work, blocks))


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(8, os.cpu_count() or 1), "blocks")
