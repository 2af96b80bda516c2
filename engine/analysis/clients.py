# SPDX-License-Identifier: GPL-3.0-or-later
"""Who asks: where answers go, and which positions of a client wait or are searched."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from engine.analysis.query import Query

LEAST_TO_SORT_ANEW = 1000
"""So many withdrawn positions may be left in a heap, and as many as there are others."""


class Client(Protocol):
    """One end of a conversation. All but its constructor is called by the scheduler's thread."""

    def send(self, answer: bytes) -> None:
        """Take an answer, a JSON object in ASCII, for delivery. Must not wait for its reader."""

    @property
    def congested(self) -> bool:
        """Whether so many answers are unread that there should be no more for now. When that is over, the
        client calls Scheduler.resume."""

    def done(self) -> None:
        """Its input had ended, and the last answer has been sent."""


@dataclass(eq=False, slots=True)
class Asked:
    """A query and how many of its positions wait. size: bytes of its message. number: no other has it."""

    query: Query
    size: int = 0
    number: int = 0
    waiting: int = 0


@dataclass(eq=False, slots=True)
class Task:
    """One position to analyse. number: grows with each that is asked for. terminated: a client has asked for
    its end while it was searched. losses: how often its searcher was lost."""

    account: Account
    asked: Asked
    turn: int
    priority: int
    number: int
    terminated: bool = False
    losses: int = 0

    @property
    def query(self) -> Query:
        """The query that it is a part of."""
        return self.asked.query

    def __lt__(self, other: Task) -> bool:
        """Whether it is to be begun before another one of the same client: at first what needs no search."""
        return self._place < other._place

    @property
    def _place(self) -> tuple[bool, int, int]:
        return self.query.searched, -self.priority, self.number


class Waiting:
    """The positions of one client that wait."""

    def __init__(self) -> None:
        self.bytes = 0
        """Of the queries with positions that wait."""
        self.unsearched = 0
        """Positions that need no search."""
        self._heap: list[Task] = []  # Some of them may have been withdrawn.
        self._by_id: dict[str, dict[Task, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, task: Task) -> None:
        """Have a position wait."""
        heappush(self._heap, task)
        self._by_id.setdefault(task.query.id, {})[task] = None
        self._count += 1
        self.unsearched += not task.query.searched
        if not task.asked.waiting:
            self.bytes += task.asked.size
        task.asked.waiting += 1

    def take(self) -> Task:
        """The position to begin next, which waits no more."""
        while not self._remove(task := heappop(self._heap)):
            pass
        return task

    def withdraw(
        self, identity: str | None = None, is_meant: Callable[[Task], bool] = lambda task: True
    ) -> list[Task]:
        """Take back the positions of the queries of an id (None: any) that are meant, in the order in which
        they would have begun. Costs nothing for an id that nothing waits of, however much else does."""
        named = [self._by_id.get(identity, {})] if identity is not None else list(self._by_id.values())
        meant = sorted(task for tasks in named for task in tasks if is_meant(task))
        for task in meant:
            self._remove(task)
        if len(self._heap) > 2 * self._count + LEAST_TO_SORT_ANEW:
            self._heap = [task for tasks in self._by_id.values() for task in tasks]
            heapify(self._heap)
        return meant

    def _remove(self, task: Task) -> bool:
        """Count a position no more; False if it waits no more."""
        named = self._by_id.get(task.query.id, {})
        if task not in named:
            return False
        del named[task]
        if not named:
            del self._by_id[task.query.id]
        self._count -= 1
        self.unsearched -= not task.query.searched
        task.asked.waiting -= 1
        if not task.asked.waiting:
            self.bytes -= task.asked.size
        return True


@dataclass(eq=False, slots=True)
class Account:
    """What one client has asked for and not been answered. served: when a position of it was last begun, as a
    number that grows. ended: it asks for nothing more."""

    client: Client
    waiting: Waiting = field(default_factory=Waiting)
    running: set[Task] = field(default_factory=set)
    served: int = 0
    ended: bool = False


def next_account(
    accounts: Iterable[Account], room: bool, most: int, *, room_without_search: bool = False
) -> Account | None:
    """The client whose position is begun next: of those with the fewest in flight the one that has waited
    longest. room: whether there is a free place; a client with nothing in flight gets one all the same, so
    that nobody waits for others' searches without end. most: that one client may have in flight.
    room_without_search: whether there is a place for a position that needs no search."""
    most = most if room else 1
    ready = [
        account
        for account in accounts
        if account.waiting
        and not account.client.congested
        and (room_without_search if account.waiting.unsearched else len(account.running) < most)
    ]
    return min(ready, key=lambda account: (len(account.running), account.served), default=None)
