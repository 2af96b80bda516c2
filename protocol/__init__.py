# SPDX-License-Identifier: GPL-3.0-or-later
"""The protocol between engine and evaluator: batches, messages, their codec, connections and a client.

Scripts need `from protocol import EvaluatorClient` only.
"""

from __future__ import annotations

from pathlib import Path as _Path
from typing import TYPE_CHECKING, Any

from protocol.common.native import locate_core as _locate_core

if TYPE_CHECKING:
    from protocol.batch import POSITION_DTYPE as POSITION_DTYPE
    from protocol.batch import PositionBatch as PositionBatch
    from protocol.client import Completed as Completed
    from protocol.client import EvaluatorClient as EvaluatorClient
    from protocol.errors import EvaluatorLost as EvaluatorLost
    from protocol.policy import policy_moves as policy_moves
    from protocol.wire.messages import NetworkInfo as NetworkInfo

_MODULES = {
    "POSITION_DTYPE": "batch",
    "PositionBatch": "batch",
    "Completed": "client",
    "EvaluatorClient": "client",
    "EvaluatorLost": "errors",
    "policy_moves": "policy",
    "NetworkInfo": "wire.messages",
}

_locate_core(__name__, __path__, _Path(__file__).resolve().parent)


def __getattr__(name: str) -> Any:
    # Imported lazily, so that code that needs only batches, or must answer `uci` quickly, does not load
    # ZeroMQ.
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(f"protocol.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
