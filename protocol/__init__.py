# SPDX-License-Identifier: GPL-3.0-or-later
"""What the engine and the evaluator say to each other: batches, messages, their codec and a client.

`from protocol import EvaluatorClient` is all a script needs to have positions evaluated.
"""

from __future__ import annotations

from pathlib import Path as _Path
from typing import TYPE_CHECKING, Any

from protocol.host.native import locate_core as _locate_core

if TYPE_CHECKING:
    from protocol.client import Completed, EvaluatorClient

__all__ = ["Completed", "EvaluatorClient"]

_locate_core(__name__, __path__, _Path(__file__).resolve().parent)


def __getattr__(name: str) -> Any:
    # Lazily: code that needs only the batch types, or has to answer `uci` at once, does not wait for ZeroMQ.
    if name in __all__:
        from protocol import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
