"""Who asks: where answers go, and which positions of a client wait or are searched."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from engine.analysis.query import Query
    from engine.pool.pool import PoolPlayer


class Client(Protocol):
    """One end of a conversation. All but its constructor is called by the scheduler's thread."""

    def send(self, answer: dict[str, Any]) -> None:
        """Take an answer for delivery. Must not wait for whoever reads it."""

    @property
    def congested(self) -> bool:
        """Whether so many answers are unread that there should be no more for now. When that is over, the
        client calls Scheduler.resume."""

    def done(self) -> None:
        """Its input had ended, and the last answer has been sent."""


@dataclass(eq=False, slots=True)
class Asked:
    """A query and how many of its positions wait. size: bytes of its message."""

    query: Query
    size: int = 0
    waiting: int = 0


@dataclass(eq=False, slots=True)
class Task:
    """One position to analyse. number: grows with each that is asked for. player: what searches it, None
    while it waits. terminated: a client has asked for its end."""

    account: Account
    asked: Asked
    turn: int
    priority: int
    number: int
    player: PoolPlayer | None = None
    terminated: bool = False

    @property
    def query(self) -> Query:
        """The query that it is a part of."""
        return self.asked.query

    def __lt__(self, other: Task) -> bool:
        """Whether it is to be begun before another one of the same client."""
        return (-self.priority, self.number) < (-other.priority, other.number)

    def is_named(self, identity: str | None, turns: Collection[int] | None) -> bool:
        """Whether it is of the query of an id and one of some turns; None is any."""
        return identity in (None, self.query.id) and (turns is None or self.turn in turns)


@dataclass(eq=False, slots=True)
class Account:
    """What one client has asked for and not been answered. waiting_bytes: of the queries with positions that
    wait. served: when a position of it was last begun, as a number that grows. ended: it asks for nothing
    more."""

    client: Client
    waiting: list[Task] = field(default_factory=list)  # A heap.
    running: set[Task] = field(default_factory=set)
    waiting_bytes: int = 0
    served: int = 0
    ended: bool = False

    def add(self, task: Task) -> None:
        """Have a position wait."""
        heappush(self.waiting, task)
        if not task.asked.waiting:
            self.waiting_bytes += task.asked.size
        task.asked.waiting += 1

    def take(self) -> Task:
        """The position to begin next, which waits no more."""
        task = heappop(self.waiting)
        self._waits_no_more(task)
        return task

    def withdraw(self, is_meant: Callable[[Task], bool]) -> list[Task]:
        """Take back the waiting positions that are meant, in the order in which they would have begun."""
        meant = sorted(task for task in self.waiting if is_meant(task))
        self.waiting = [task for task in self.waiting if not is_meant(task)]
        heapify(self.waiting)
        for task in meant:
            self._waits_no_more(task)
        return meant

    def _waits_no_more(self, task: Task) -> None:
        task.asked.waiting -= 1
        if not task.asked.waiting:
            self.waiting_bytes -= task.asked.size


def next_account(accounts: Iterable[Account], room: bool, most: int) -> Account | None:
    """The client whose position is begun next: of those with the fewest under way the one that has waited
    longest. room: whether there is a free place; a client with nothing under way gets one all the same, so
    that nobody waits for others' searches without end. most: that one client may have under way."""
    ready = [
        account
        for account in accounts
        if account.waiting
        and not account.client.congested
        and (len(account.running) < most if room else not account.running)
    ]
    return min(ready, key=lambda account: (len(account.running), account.served), default=None)
