# SPDX-License-Identifier: GPL-3.0-or-later
"""The interface between the scheduler and its searches (local.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from engine.apps.analysis.query import Query

Post = Callable[[Callable[[], None]], None]
"""Call a function soon in the thread that owns the searches. Thread-safe."""


@dataclass(frozen=True, slots=True)
class QueryPosition:
    """One position of a query to search.

    number: unique. network: content hash of the network in the query; empty for the engine's network.
    tree_memory, hash: memory limits in MB. owner: of its client.
    """

    number: int
    query: Query
    turn: int
    network: str
    tree_memory: int
    hash: int
    owner: str


class SearchListener(Protocol):
    """Callbacks about positions. The thread that owns the searches calls them, never within a call to it.
    Answers are encoded JSON objects."""

    def wants_report(self, number: int) -> bool:
        """Return True if a report on a position would be delivered now."""

    def reported(self, number: int, answer: bytes) -> None:
        """Deliver an answer during a search."""

    def ended(self, number: int, answer: bytes, evaluator_lost: bool) -> None:
        """Deliver the last answer for a position. evaluator_lost: True if no evaluator is available."""
