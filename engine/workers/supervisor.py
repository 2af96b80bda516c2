# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps workers in other processes running.

Each slot has one worker at a time. When a worker is lost another one is started in its slot. What workers do
is known to subclasses: games are handed out in playing.py.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

from engine.workers.executor import Log, WorkerHandle, WorkerLostError, WorkerReport, first_line

if TYPE_CHECKING:
    from engine.pool.pool import PoolStatistics

OPEN_SECONDS = 600.0
"""How long a worker may take to be ready; to start an evaluator with a large network takes minutes the first
time."""

MAX_FAILURES = 3
"""Workers of one slot that may be lost without having finished anything, before the slot stays empty."""

CLOSE_SECONDS = 10.0
"""How long workers may take to end what is in flight."""


@dataclass(eq=False, slots=True)
class Worker:
    """A worker that is ready. capacity: games at once that are best there. load: running games there.
    reported_at: when its statistics came (monotonic seconds)."""

    slot: Slot
    handle: WorkerHandle
    capacity: int
    load: int = 0
    statistics: PoolStatistics | None = None
    reported_at: float = 0.0


@dataclass(eq=False, slots=True)
class Slot:
    """Where a worker runs, or could run. failures: workers lost in a row. starting: one is being started.
    reason: why the last one was lost."""

    name: str
    failures: int = 0
    starting: bool = False
    worker: Worker | None = None
    reason: str = ""

    @property
    def given_up(self) -> bool:
        """Whether no further worker is started here."""
        return self.failures >= MAX_FAILURES


class Supervisor(ABC):
    """Workers in slots. Subclasses know the slots and start workers in them. Belongs to the event loop.

    poll_seconds: time between two looks at the workers, for their messages and statistics.
    """

    poll_seconds = 2.0

    def __init__(self, log: Log) -> None:
        self.log = log
        self.closing = False
        self.slots: list[Slot] = []
        self.changed = asyncio.Condition()
        """Of the workers and of what is known of them."""
        self._tasks: set[asyncio.Task[None]] = set()

    # -- what subclasses know ----------------------------------------------------------------------------

    @abstractmethod
    async def start_worker(self, slot: Slot) -> WorkerHandle:
        """Start a worker in a slot. Raises WorkerLostError."""

    @abstractmethod
    async def poll(self) -> None:
        """Look every `poll_seconds` at what the workers depend on."""

    @abstractmethod
    def exhausted(self) -> str:
        """The message when no slot is left that could have a worker."""

    def worker_ready(self, worker: Worker) -> None:
        """Have a worker that has just become ready used."""
        worker.slot.worker = worker

    async def close(self) -> None:
        """End what is in flight, and all workers."""
        self.closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(self._close_worker(worker) for worker in self.workers()))

    # -- slots and workers -------------------------------------------------------------------------------

    def workers(self) -> list[Worker]:
        """The workers that are ready."""
        return [slot.worker for slot in self.slots if slot.worker is not None]

    @property
    def starting(self) -> bool:
        """Whether any worker is being started."""
        return any(slot.starting for slot in self.slots)

    def reasons(self) -> str:
        """Why the slots lost their last workers."""
        return "; ".join(f"{slot.name}: {slot.reason}" for slot in self.slots if slot.reason)

    async def start(self, slots: Iterable[Slot]) -> None:
        """Start the first workers, and wait until each is ready or has failed."""
        for slot in slots:
            self.restart(slot, attempts=1)
        async with self.changed:
            await self.changed.wait_for(lambda: not self.starting)
        self.spawn(self._poll_for_ever())

    def restart(self, slot: Slot, attempts: int = MAX_FAILURES) -> None:
        """Start a worker in a slot, unless it has one or is given up."""
        if slot not in self.slots:
            self.slots.append(slot)
        if slot.worker is None and not slot.starting and not slot.given_up and not self.closing:
            slot.starting = True
            self.spawn(self._restart(slot, attempts))

    async def worker_lost(self, worker: Worker, reason: str) -> None:
        """End a worker that is of no use any more, and start another one in its slot."""
        slot = worker.slot
        if slot.worker is worker and not self.closing:
            slot.worker = None
            self._note_failure(slot, reason)
            self.restart(slot)
            await worker.handle.kill()
        await self.notify()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine as a task, until it is done or the executor is closed."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _restart(self, slot: Slot, attempts: int) -> None:
        try:
            for _ in range(attempts):
                if await self._open_worker(slot) or slot.given_up:
                    break
        finally:
            slot.starting = False
            await self.notify()

    async def _open_worker(self, slot: Slot) -> bool:
        """Start a worker and wait until it is ready; False if that failed."""
        handle: WorkerHandle | None = None
        worker: Worker | None = None
        try:
            handle = await self.start_worker(slot)
            async with asyncio.timeout(OPEN_SECONDS):
                worker = Worker(slot, handle, await handle.open())
            self.worker_ready(worker)
        except TimeoutError:
            self._note_failure(slot, f"no worker was ready after {OPEN_SECONDS:.0f} s: is the machine busy?")
        except Exception as error:  # Whatever goes wrong in one slot, the others play on.
            self._note_failure(slot, first_line(error))
        finally:
            if worker is None and handle is not None:
                await handle.kill()
        return worker is not None

    def _note_failure(self, slot: Slot, reason: str) -> None:
        slot.failures += 1
        slot.reason = reason
        self.log(f"{slot.name} lost: {reason}")

    async def notify(self) -> None:
        """Tell those who wait that something has changed."""
        async with self.changed:
            self.changed.notify_all()

    async def _poll_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self.poll_seconds)
            await self.poll()
            await asyncio.gather(*(self.ask_report(worker) for worker in self.workers()))

    async def ask_report(self, worker: Worker) -> None:
        """Take over a worker's messages and statistics. Whether it is lost shows in its games."""
        try:
            async with asyncio.timeout(self.poll_seconds):
                self._take_report(worker, await worker.handle.report())
        except (WorkerLostError, TimeoutError):
            return

    async def _close_worker(self, worker: Worker) -> None:
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                self._take_report(worker, await worker.handle.close())
        except (WorkerLostError, TimeoutError) as error:
            self.log(f"{worker.slot.name} did not end by itself: {first_line(error)}")
        finally:
            await worker.handle.kill()

    def _take_report(self, worker: Worker, report: WorkerReport) -> None:
        worker.statistics, messages = report
        worker.reported_at = monotonic()
        for message in messages:
            self.log(f"{worker.slot.name}: {message}")
