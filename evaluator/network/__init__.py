# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading and writing of lc0 network files: NetworkSpec, plain dataclasses of arrays for every backend."""

from evaluator.network.errors import NetworkError
from evaluator.network.loader import (
    SHIPPED_GPU_NETWORK,
    SHIPPED_NETWORK,
    SHIPPED_NETWORKS,
    load_network,
    network_file,
)
from evaluator.network.spec import NetworkSpec

__all__ = [
    "SHIPPED_GPU_NETWORK",
    "SHIPPED_NETWORK",
    "SHIPPED_NETWORKS",
    "NetworkError",
    "NetworkSpec",
    "load_network",
    "network_file",
]
