"""What the engine and the evaluator say to each other: batches, messages, their codec and a client.

`from protocol import EvaluatorClient` is all a script needs to have positions evaluated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from protocol.client import Completed, EvaluatorClient

__all__ = ["Completed", "EvaluatorClient"]


def __getattr__(name: str) -> Any:
    # Lazily: whoever needs only the batch types, or has to answer `uci` at once, does not wait for ZeroMQ.
    if name in __all__:
        from protocol import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
