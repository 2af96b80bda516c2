# SPDX-License-Identifier: GPL-3.0-or-later
"""Clients, and their waiting and running positions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from engine.apps.analysis.query import Query

MOST_WITHDRAWN = 1000
"""Maximum withdrawn positions in a heap, in addition to the number of others."""


class Client(Protocol):
    """A connection to a client. The scheduler's thread calls all methods except the constructor.

    owner: whose trees and evaluations its searches find: one name for all requests with a token, or from an
    address.
    """

    owner: str

    def send(self, answer: bytes) -> None:
        """Queue an answer, a JSON object in ASCII, for delivery. Must not wait for the reader."""

    @property
    def congested(self) -> bool:
        """True while too many answers are unread. When that ends, the client calls Scheduler.resume."""

    def done(self) -> None:
        """Called after the end of the input, when the last answer has been sent."""


@dataclass(eq=False, slots=True)
class QueryState:
    """A query. size: bytes of its message. waiting: number of its waiting positions."""

    query: Query
    size: int = 0
    waiting: int = 0


@dataclass(eq=False, slots=True)
class Task:
    """One position to analyse. number: increases with each request. terminated: a client terminated its
    running search."""

    account: ClientTasks
    state: QueryState
    turn: int
    priority: int
    number: int
    terminated: bool = False

    @property
    def query(self) -> Query:
        """The query of the position."""
        return self.state.query

    def __lt__(self, other: Task) -> bool:
        """Return True if it starts before another position of the client: without a search first."""
        return self._place < other._place

    @property
    def _place(self) -> tuple[bool, int, int]:
        return self.query.searched, -self.priority, self.number


class TaskQueue:
    """The waiting positions of one client."""

    def __init__(self) -> None:
        self.bytes = 0
        """Total size of the queries with waiting positions."""
        self.unsearched = 0
        """Number of positions that need no search."""
        self._heap: list[Task] = []  # Includes withdrawn ones.
        self._by_id: dict[str, dict[Task, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, task: Task) -> None:
        """Add a waiting position."""
        heappush(self._heap, task)
        self._by_id.setdefault(task.query.id, {})[task] = None
        self._count += 1
        self.unsearched += not task.query.searched
        if not task.state.waiting:
            self.bytes += task.state.size
        task.state.waiting += 1

    def take(self) -> Task:
        """Remove and return the position to start next."""
        while not self._remove(task := heappop(self._heap)):
            pass
        return task

    def withdraw(
        self, identity: str | None = None, is_meant: Callable[[Task], bool] = lambda task: True
    ) -> list[Task]:
        """Remove and return the matching positions of an id (None: any), in the order of their start. An id
        without waiting positions costs nothing, however many others wait."""
        named = [self._by_id.get(identity, {})] if identity is not None else list(self._by_id.values())
        meant = sorted(task for tasks in named for task in tasks if is_meant(task))
        for task in meant:
            self._remove(task)
        if len(self._heap) > 2 * self._count + MOST_WITHDRAWN:
            self._heap = [task for tasks in self._by_id.values() for task in tasks]
            heapify(self._heap)
        return meant

    def _remove(self, task: Task) -> bool:
        """Uncount a position; return False if it no longer waits."""
        named = self._by_id.get(task.query.id, {})
        if task not in named:
            return False
        del named[task]
        if not named:
            del self._by_id[task.query.id]
        self._count -= 1
        self.unsearched -= not task.query.searched
        task.state.waiting -= 1
        if not task.state.waiting:
            self.bytes -= task.state.size
        return True


@dataclass(eq=False, slots=True)
class ClientTasks:
    """The unanswered positions of one client. served: an increasing number, set when one of its positions
    starts. ended: the client sends no further requests."""

    client: Client
    waiting: TaskQueue = field(default_factory=TaskQueue)
    running: set[Task] = field(default_factory=set)
    served: int = 0
    ended: bool = False


def next_client(
    accounts: Collection[ClientTasks], has_slot: bool, most: int, *, evaluates: bool = False
) -> ClientTasks | None:
    """Return the client whose position starts next: of the owner with the fewest running, or of two the
    one that has waited longest; so among the owner's clients. has_slot: True if another search may start. A
    client without running positions may start one in any case, so that it does not wait indefinitely. most:
    maximum running positions of one client. evaluates: True if a position that needs no search may start."""
    most = most if has_slot else 1
    running, served = Counter[str](), Counter[str]()
    for account in accounts:
        owner = account.client.owner
        running[owner] += len(account.running)
        served[owner] = max(served[owner], account.served)
    ready = [
        account
        for account in accounts
        if account.waiting
        and not account.client.congested
        and (evaluates if account.waiting.unsearched else len(account.running) < most)
    ]

    def place(account: ClientTasks) -> tuple[int, int, int, int]:
        owner = account.client.owner
        return running[owner], served[owner], len(account.running), account.served

    return min(ready, key=place, default=None)
