"""lc0 network files -> NetworkSpec, plain dataclasses of arrays that every backend reads."""

from evaluator.network.errors import NetworkError
from evaluator.network.loader import SHIPPED_NETWORK, load_network
from evaluator.network.spec import NetworkSpec

__all__ = ["SHIPPED_NETWORK", "NetworkError", "NetworkSpec", "load_network"]
