# SPDX-License-Identifier: GPL-3.0-or-later
"""The loop that runs searches: one of a session in its own thread, or many of a pool in the pool's thread.

    PooledSearch.advance   collects positions from its tree and submits them (search.py)
    PooledEvaluator.flush  joins the positions of all searches and sends them (evaluation/send)
    PooledSearch.burst     exchanges a lone search's batches in the core, without the interpreter
    PooledEvaluator.receive applies the answers, after which their searches can advance

A search is advanced after an answer, when its clock or a report requires it, or after an event of another
thread: a new search, `stop`, `ponderhit`, a connection. Nothing is polled.
"""

from __future__ import annotations

import queue
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING

from engine.evaluation.link.health import QUIET_SECONDS
from engine.evaluation.spread.routing import WORTH_SENDING
from protocol.common.wakeup import Wakeup

if TYPE_CHECKING:
    from engine.evaluation.send.pooled import PooledEvaluator
    from engine.search.loop.evaluation import PooledEvaluation
    from engine.search.loop.search import PooledSearch

    Pooled = PooledSearch | PooledEvaluation
    """The tasks of a loop."""

SHORTEST_WAIT = 0.0002
"""Shortest wait in seconds, if a check is due and no answer has come."""

LEAST_IN_FLIGHT = 2
"""Searches of one owner that may always have positions in flight, so that batches are not too small."""


class SearchLoop:
    """Running searches and their evaluators. Only one thread may use it, except `submit` and `use`.

    evaluators: those of the searches. active: the running searches. interrupt: descriptor that is readable
    after `submit`.
    """

    def __init__(self, processes: int = 1) -> None:
        """processes: how many with similar loops share the evaluators."""
        self.evaluators: tuple[PooledEvaluator[Pooled], ...] = ()
        self.active: set[Pooled] = set()
        self._orders: queue.SimpleQueue[Pooled | Callable[[], None]] = queue.SimpleQueue()
        self._wakeup = Wakeup()
        self.interrupt = self._wakeup.fileno()
        self._processes = processes
        self._watched: set[Pooled] = set()
        """Active ones that time may advance, the first of them at `_next_look`."""
        self._next_look = inf
        self._due: set[Pooled] = set()
        self._ready: dict[Pooled, None] = {}
        """Answered ones whose owner has its share in flight; the next comes first."""

    def submit(self, what: Pooled | Callable[[], None], *, wake: bool = True) -> None:
        """Call a function in the loop's thread, or advance a task, which is added if necessary. Any thread.
        wake: False in the loop's thread, during a step."""
        self._orders.put(what)
        if wake:
            self._wakeup.wake()

    def use(self, evaluators: Iterable[PooledEvaluator[Pooled]]) -> None:
        """Use these evaluators. All tasks are advanced when one of them is ready or has failed."""
        self.evaluators = tuple(evaluators)
        for link in (link for evaluator in self.evaluators for link in evaluator.links):
            link.notify = partial(self.submit, lambda: self._due.update(self.active))

    def close(self) -> None:
        """Free the descriptors. No step may follow."""
        self._wakeup.close()

    def add(self, running: Pooled) -> None:
        """Run a task until its future has a result, or stop it as soon as possible if that is asked for."""
        if running not in self.active:
            running.control.on_change = partial(self.submit, running)
        if not self.active:  # Late results of earlier searches spare this one requests.
            for evaluator in self.evaluators:
                evaluator.receive(0.0)
        elif len(self.active) == 1:  # It gets no more bursts, and perhaps has no answer to wait for.
            self._due |= self.active
        self.active.add(running)
        self._due.add(running)

    def remove(self, running: Pooled) -> None:
        """Forget a task."""
        for tasks in (self.active, self._watched, self._due):
            tasks.discard(running)
        self._ready.pop(running, None)

    def step(self) -> None:
        """Wait for an event, and advance the searches that it concerns."""
        while not self._orders.empty():
            order = self._orders.get()
            for task in self.active:
                task.take_back()
            if callable(order):
                order()
            elif order.future.done():
                self.remove(order)  # It may have been cancelled.
            else:
                self.add(order)
        now = perf_counter()
        due, self._due = self._due, set()
        if now >= self._next_look:
            due |= {task for task in self._watched if now >= task.due_at}
            self._next_look = min((task.due_at for task in self._watched if task not in due), default=inf)
        due |= self._admitted((), due)
        due |= self._admitted(self._received(0.0) if due else self._awaited(now), due)
        for task in due & self.active:
            if not task.advance(len(self.active) * self._processes, self._processes):
                self.remove(task)
                continue
            if task.due_at == inf:
                self._watched.discard(task)
            else:
                self._watched.add(task)
                self._next_look = min(self._next_look, task.due_at)
            if task.can_continue:
                self._ready[task] = None
            for evaluator in self.evaluators:
                if evaluator.added >= WORTH_SENDING:  # It starts while the other searches continue.
                    self._due |= evaluator.flush()
        for evaluator in self.evaluators:
            self._due |= evaluator.flush()

    def _admitted(self, answered: Iterable[Pooled], due: set[Pooled]) -> set[Pooled]:
        """Return the answered searches that continue now. Of several owners, none has more searches in flight
        than the one with the fewest, or LEAST_IN_FLIGHT. due: searches that continue in any case."""
        self._ready.update(dict.fromkeys(answered))
        if len({each.owner for each in self.active}) < 2:
            admitted, self._ready = set(self._ready), {}
            return admitted
        busy = [each for each in self.active if each in self._ready or each in due or each.in_flight]
        in_flight, admitted = Counter(each.owner for each in busy), set()
        most = max(LEAST_IN_FLIGHT, min(in_flight.values(), default=0))
        in_flight.subtract(each.owner for each in self._ready)
        for task in [*self._ready]:
            if in_flight[task.owner] < most:
                in_flight[task.owner] += 1
                admitted.add(task)
                del self._ready[task]
        return admitted

    def _awaited(self, now: float) -> set[Pooled]:
        """Wait for an answer, for the time of the next check, or for the wake-up. Return the searches that
        can continue."""
        # Return at intervals, so that the keepalive of an evaluator that owes answers works.
        seconds = min(QUIET_SECONDS, max(SHORTEST_WAIT, self._next_look - now))
        left = seconds
        if len(self.active) == 1:
            (task,) = self.active
            end = task.burst(now + seconds, self.interrupt)
            if end in ("time", "look", "idle"):
                return {task}
            if end is not None:
                left = 0.0
        answered = self._received(left)
        if not answered:
            self._wakeup.clear()
            late_ms = 1000 * (perf_counter() - now - seconds)
            for task in self._watched if late_ms > 0 else ():
                task.record_lateness(late_ms)
        return answered

    def _received(self, seconds: float) -> set[Pooled]:
        """Wait for answers up to `seconds`. Return the searches that were answered."""
        clients = [client for evaluator in self.evaluators for client in evaluator.awaited_clients]
        if not clients:
            if seconds:
                self._wakeup.wait(seconds)
            return set()
        milliseconds = 1000 * seconds
        if len(clients) > 1:
            from protocol.client import wait_for_any

            wait_for_any(clients, milliseconds, self.interrupt)
            milliseconds = 0.0
        answered: set[Pooled] = set()
        for evaluator in self.evaluators:
            answered |= evaluator.receive(milliseconds)
        return answered
