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
from evaluator.network.policy_tables import attention_map, position_encoding, source_of_policy
from evaluator.network.random_network import NetworkShape, random_network
from evaluator.network.schema import InputEmbedding, InputFormat
from evaluator.network.spec import Activation, Dense, FloatArray, NetworkSpec, Smolgen
from evaluator.network.writer import write_network
