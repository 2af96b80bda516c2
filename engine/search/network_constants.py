# SPDX-License-Identifier: GPL-3.0-or-later
"""Search constants that were tuned for networks and small trees, see docs/explanation/search.md.

The defaults of the options are lc0's constants. They suit large trees and networks not in the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.options import Options
    from engine.search.limits import Limits
    from protocol.settings.spec import Value

TUNED: Mapping[str, Value] = {
    "cpuct": 0.93,
    "root_has_own_cpuct": True,
    "cpuct_at_root": 1.72,
    "fpu_value": 0.2,
    "policy_temperature": 1.75,
}
"""Of `wavefront tune` with wavefront-gpu at 800 nodes; docs/lab/search.md has the matches of both."""

CONSTANTS: Mapping[str, Mapping[str, Value]] = {
    "b329d6ca28b33850038342eec7cc140579d747dd6d10e4a07e3b526ac92fc9c4": TUNED,  # wavefront-gpu
    "b6237688113ceee8a5556933807b4fdad6b23b42fb12e149fe32ec00d3ac4317": TUNED,  # wavefront-cpu
}
"""Options by NetworkInfo.content_hash."""

MOST_NODES = 3200
"""Largest limit on nodes of a search with them. They win at 3,200 nodes and gain nothing at 10,000."""


def with_network_constants(options: Options, content_hash: str, limits: Limits) -> Options:
    """Return the options of a search with these limits.

    If only nodes are limited, to MOST_NODES or fewer, the network's constants replace defaults.
    content_hash: NetworkInfo.content_hash.
    """
    constants = CONSTANTS.get(content_hash)
    is_small = limits.nodes is not None and limits.by_nodes and limits.nodes <= MOST_NODES
    if constants is None or not is_small or not options.network_constants:
        return options
    return options.changed(
        **{
            name: value
            for name, value in constants.items()
            if getattr(options, name) == options.setting(name).default
        }
    )
