# SPDX-License-Identifier: GPL-3.0-or-later
"""Interfaces between the scheduler and its searcher: this process (local.py) or several (workers.py)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from engine.analysis.query import Query

Post = Callable[[Callable[[], None]], None]
"""Call a function soon in the thread that owns a searcher. Thread-safe."""


@dataclass(frozen=True, slots=True)
class Position:
    """One position of a query to search.

    number, query_number: unique numbers of the position and of its query. network: content hash of the
    network in the query; empty for the engine's network. tree_memory, hash: memory limits in MB. owner: of
    its client.
    """

    number: int
    query_number: int
    query: Query
    turn: int
    network: str
    tree_memory: int
    hash: int
    owner: str


class SearchListener(Protocol):
    """Callbacks about positions. The thread that owns the searcher calls them, never within a call to it.
    Answers are encoded JSON objects."""

    def wants_report(self, number: int) -> bool:
        """Return True if a report on a position would be delivered now."""

    def reported(self, number: int, answer: bytes) -> None:
        """Deliver an answer during a search."""

    def ended(self, number: int, answer: bytes, evaluator_lost: bool) -> None:
        """Deliver the last answer for a position. evaluator_lost: True if no evaluator is available."""


class FarListener(SearchListener, Protocol):
    """A listener of searchers that may be lost."""

    def lost(self, numbers: Collection[int], reason: str) -> None:
        """Handle positions that get no answer because their searcher is gone."""

    def changed(self) -> None:
        """Handle a searcher that may have become ready."""

    def gave_up(self, reason: str) -> None:
        """Handle a searcher that becomes ready only after another `open`."""


class Searcher(Protocol):
    """Search positions. Only the owning thread may call the methods except `open` and `close`."""

    @property
    def ready(self) -> bool:
        """True if a position can start."""

    def open(self) -> None:
        """Prepare, for the first time or again. Thread-safe; waits. Raises NoEvaluatorError."""

    def begin(self, position: Position) -> None:
        """Search a position, or answer it without a search. Raises nothing."""

    def stop(self, number: int) -> None:
        """Stop the search of a position, which is answered with its results. Ignored if it has ended."""

    def clear_cache(self, owner: str) -> None:
        """Discard an owner's evaluations at once; running searches discard theirs at their end."""

    def close(self) -> None:
        """Stop all searches without answers, and wait for their end. Idempotent."""
