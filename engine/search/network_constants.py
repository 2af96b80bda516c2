# SPDX-License-Identifier: GPL-3.0-or-later
"""Search constants that were tuned for a network, see docs/explanation/search.md.

The defaults of the options are lc0's constants. They suit networks that are not in the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.options import Options
    from protocol.settings.spec import Value

WAVEFRONT_GPU: Mapping[str, Value] = {
    "cpuct": 0.93,
    "root_has_own_cpuct": True,
    "cpuct_at_root": 1.72,
    "fpu_value": 0.2,
    "policy_temperature": 1.75,
}
"""Of `wavefront tune` at 800 nodes; docs/lab/search.md has the match."""

CONSTANTS: Mapping[str, Mapping[str, Value]] = {
    "b329d6ca28b33850038342eec7cc140579d747dd6d10e4a07e3b526ac92fc9c4": WAVEFRONT_GPU,
}
"""Options by NetworkInfo.content_hash."""


def with_network_constants(options: Options, content_hash: str) -> Options:
    """Return options of a search with the network's constants for those at their defaults.

    content_hash: NetworkInfo.content_hash.
    """
    constants = CONSTANTS.get(content_hash)
    if constants is None or not options.network_constants:
        return options
    return options.changed(
        **{
            name: value
            for name, value in constants.items()
            if getattr(options, name) == options.setting(name).default
        }
    )
