# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory of the search tree: the default of RamLimitMb fits the machine or container."""

from __future__ import annotations

from engine.options import Options
from protocol.host.memory import process_memory

DEFAULT_MB = Options().tree_memory

TREE_SHARE = 4
"""The default tree takes at most the process's memory divided by this: the evaluator, cache and interpreter
need the rest."""

LEAST_MB = 16


def tree_megabytes(options: Options) -> int:
    """Return the maximum size of the search tree in megabytes: RamLimitMb, but at its default at most a
    quarter of the memory that the process may use."""
    if options.tree_memory != DEFAULT_MB:
        return options.tree_memory
    return max(LEAST_MB, min(DEFAULT_MB, (process_memory() >> 20) // TREE_SHARE))
