# SPDX-License-Identifier: GPL-3.0-or-later
"""Between the scheduler and those who search for it: this process (local.py) or several (workers.py)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from engine.analysis.query import Query

Post = Callable[[Callable[[], None]], None]
"""Has something done by the thread that owns a searcher, soon. From any thread."""


@dataclass(frozen=True, slots=True)
class Position:
    """One position of a query to be searched.

    number: of this position, and query_number of its query; no other has the same. network: content hash of
    the network that the query names, empty for the engine's own. tree_memory, hash: what the search may take
    up, in MB.
    """

    number: int
    query_number: int
    query: Query
    turn: int
    network: str
    tree_memory: int
    hash: int


class Listener(Protocol):
    """Receives what becomes of positions. Called by the thread that owns the searcher, never within a call
    to it. Answers are JSON objects, encoded."""

    def wants_report(self, number: int) -> bool:
        """Whether a report on a position would be delivered now."""

    def reported(self, number: int, answer: bytes) -> None:
        """A search as it stands."""

    def ended(self, number: int, answer: bytes, evaluator_lost: bool) -> None:
        """A position has got its last answer. evaluator_lost: that says that no evaluator can be had."""


class FarListener(Listener, Protocol):
    """The same where positions are searched by those who may be lost."""

    def lost(self, numbers: Collection[int], reason: str) -> None:
        """Positions will get no answer: their searcher is gone."""

    def changed(self) -> None:
        """The searcher may have become ready."""

    def gave_up(self, reason: str) -> None:
        """The searcher will not be ready by itself any more: it has to be opened again."""


class Searcher(Protocol):
    """Searches positions. All but `open` and `close` are for the thread that owns it."""

    @property
    def ready(self) -> bool:
        """Whether a position can be begun."""

    def open(self) -> None:
        """Get ready, for the first time or once more. Any thread; waits. Raises NoEvaluatorError."""

    def begin(self, position: Position) -> None:
        """Search a position, or answer it without a search. Raises nothing."""

    def stop(self, number: int) -> None:
        """End the search of a position, which is answered with what has been found. Nothing for one that has
        ended."""

    def clear_cache(self) -> None:
        """Forget all evaluations: at once, but for the running searches, which forget them at their end."""

    def close(self) -> None:
        """End all that was begun, without answers. Idempotent; waits."""
