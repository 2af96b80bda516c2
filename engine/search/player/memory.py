# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory of a search: the defaults of RamLimitMb and Hash fit the machine or container."""

from __future__ import annotations

from engine.options import Options
from protocol.common.memory import process_memory

DEFAULT_MB = Options().tree_memory

TREE_SHARE = 4
"""The default tree takes at most the process's memory divided by this: the evaluator, cache and interpreter
need the rest."""

LEAST_MB = 16

DEFAULT_HASH_MB = Options().hash

SMALL_HASH_MB = 64

HASH_SHARE = 8
"""The default cache takes at most the tree's memory divided by this, unless that is below SMALL_HASH_MB."""


def tree_megabytes(options: Options) -> int:
    """Return the maximum size of the search tree in megabytes: RamLimitMb, but at its default at most a
    quarter of the memory that the process may use."""
    if options.tree_memory != DEFAULT_MB:
        return options.tree_memory
    return max(LEAST_MB, min(DEFAULT_MB, (process_memory() >> 20) // TREE_SHARE))


def cache_megabytes(options: Options) -> int:
    """Return the size of the evaluation cache in megabytes: Hash, but at its default at most an eighth
    of the tree's, or SMALL_HASH_MB."""
    if options.hash != DEFAULT_HASH_MB:
        return options.hash
    return min(DEFAULT_HASH_MB, max(SMALL_HASH_MB, tree_megabytes(options) // HASH_SHARE))
