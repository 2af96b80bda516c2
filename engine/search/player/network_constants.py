# SPDX-License-Identifier: GPL-3.0-or-later
"""Search constants that suit a network and its usual device, see docs/explanation/search.md.

The defaults of the options are lc0's constants. They serve all networks that are not in the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.options import Options
    from protocol.common.settings.spec import Value

# docs/lab/search.md has the matches of both, docs/lab/training.md those of today's temperature on GPUs.

ON_GPU: Mapping[str, Value] = {"fpu_value": 0.27, "policy_temperature": 1.8}
"""Less exploration would halve a GPU's nodes per second: most visits would meet positions in flight."""

ON_CPU: Mapping[str, Value] = {
    "cpuct": 0.93,
    "cpuct_base": 10000.0,
    "cpuct_factor": 2.47,
    "root_has_own_cpuct": True,
    "cpuct_at_root": 1.72,
    "fpu_value": 0.2,
    "policy_temperature": 1.75,
}
"""Of `wavefront tune` at 800 nodes, but exploration grows to that of lc0's constants at 10,000 visits."""

CONSTANTS: Mapping[str, Mapping[str, Value]] = {
    "2f8c2c533f186c7eb5c3bdb04edf1fa242757aafafe2c8e641a57812bdd64673": ON_GPU,  # wavefront-gpu
    "70c501f31fcd421f91284458040bb87664f7dc17cbfb43f2a68656b6c222c2fc": ON_CPU,  # wavefront-cpu
}
"""Options by NetworkInfo.content_hash."""


@lru_cache(maxsize=16)
def with_network_constants(options: Options, content_hash: str) -> Options:
    """Return the options with the network's constants instead of defaults, unless they are switched off.

    content_hash: NetworkInfo.content_hash.
    """
    if not options.network_constants:
        return options
    return options.changed(
        **{
            name: value
            for name, value in CONSTANTS.get(content_hash, {}).items()
            if getattr(options, name) == options.setting(name).default
        }
    )
