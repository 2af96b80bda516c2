# SPDX-License-Identifier: GPL-3.0-or-later
"""Supervision of workers in other processes, and the distribution of games to them.

Each slot has one worker at a time, and a lost worker is replaced. A game goes to the worker with the lowest
load. Games of a lost worker are played again on others. Only returned games count, so no game is counted
twice.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, Generic

from engine.workers.executor import (
    ExecutorError,
    FailedGame,
    Game,
    Log,
    WorkerHandle,
    WorkerLostError,
    WorkerReport,
    first_line,
)

if TYPE_CHECKING:
    from engine.search.pool import PoolStatistics


OPEN_SECONDS = 600.0
"""Timeout for the start of a worker. The first start of an evaluator with a large network takes minutes."""

MAX_FAILURES = 3
"""Consecutive workers of a slot lost without a finished task, after which the slot stays empty."""

CLOSE_SECONDS = 10.0
"""Timeout for the workers' current tasks at the end."""


@dataclass(eq=False, slots=True)
class Worker:
    """A ready worker. capacity: best number of concurrent games. load: running games. reported_at: time of
    its statistics, in monotonic seconds."""

    slot: Slot
    handle: WorkerHandle
    capacity: int
    load: int = 0
    statistics: PoolStatistics | None = None
    reported_at: float = 0.0


@dataclass(eq=False, slots=True)
class Slot:
    """A place for one worker. failures: consecutive lost workers. starting: True while one is starting.
    reason: why the last one was lost."""

    name: str
    failures: int = 0
    starting: bool = False
    worker: Worker | None = None
    reason: str = ""

    @property
    def given_up(self) -> bool:
        """True if no further worker is started here."""
        return self.failures >= MAX_FAILURES


class GameSupervisor(ABC, Generic[Game]):
    """An executor that lets workers in slots play its games. Only the event loop may use it.

    Subclasses define the slots and start workers. poll_seconds: interval of polling the workers' messages and
    statistics.
    """

    games_per_task = 1
    poll_seconds = 2.0

    def __init__(self, log: Log) -> None:
        self.log = log
        self.closing = False
        self.slots: list[Slot] = []
        self.changed = asyncio.Condition()
        """Notified of changes of the workers and of their states."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._all_workers: list[Worker] = []
        """Those that were ready, also lost ones."""

    # -- for subclasses ----------------------------------------------------------------------------------

    @abstractmethod
    async def start_worker(self, slot: Slot) -> WorkerHandle:
        """Start a worker in a slot. Raises WorkerLostError."""

    @abstractmethod
    async def poll(self) -> None:
        """Check the workers' dependencies, every `poll_seconds`."""

    @abstractmethod
    def exhausted(self) -> str:
        """Return the message that no slot can have a worker."""

    async def close(self) -> None:
        """Stop the current tasks and all workers."""
        self.closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(self._close_worker(worker) for worker in self.workers()))

    # -- games ---------------------------------------------------------------------------------------------

    async def play(self, numbers: Sequence[int]) -> list[Game | FailedGame]:
        """Play the games with these numbers. Raises ExecutorError if no slot is left."""
        while True:
            worker = await self._least_loaded()
            worker.load += len(numbers)
            try:
                games: list[Game | FailedGame] = await worker.handle.call("play", list(numbers))
                worker.slot.failures = 0
                await self.ask_report(worker)  # The statistics displayed with a game include it.
                return games
            except WorkerLostError as error:
                await self.worker_lost(worker, str(error))
            finally:
                worker.load -= len(numbers)

    def statistics(self) -> PoolStatistics:
        """Return the reported totals of all workers, including lost ones."""
        from engine.search.pool import PoolStatistics

        reports = [(worker, worker.statistics) for worker in self._all_workers if worker.statistics]
        began = min((worker.reported_at - s.seconds for worker, s in reports if s.seconds), default=0.0)
        latest = max((worker.reported_at for worker, s in reports if s.seconds), default=0.0)
        evaluations = sum(s.evaluations for _, s in reports)
        batches = sum(s.evaluations / s.mean_batch for _, s in reports if s.mean_batch)
        return PoolStatistics(
            searches=sum(s.searches for _, s in reports),
            evaluations=evaluations,
            seconds=latest - began,
            mean_batch=evaluations / batches if batches else 0.0,
            moves=sum(s.moves for _, s in reports),
        )

    async def _least_loaded(self) -> Worker:
        """Return the worker with the lowest load; wait while any is starting. Raises ExecutorError."""
        async with self.changed:
            await self.changed.wait_for(lambda: self.workers() or not self.starting)
        workers = self.workers()
        if not workers:
            raise ExecutorError(self.exhausted())
        return min(workers, key=lambda worker: (worker.load + 1) / max(1, worker.capacity))

    # -- slots and workers -------------------------------------------------------------------------------

    def workers(self) -> list[Worker]:
        """Return the ready workers."""
        return [slot.worker for slot in self.slots if slot.worker is not None]

    @property
    def starting(self) -> bool:
        """True while any worker is starting."""
        return any(slot.starting for slot in self.slots)

    def reasons(self) -> str:
        """Return why the slots lost their last workers."""
        return "; ".join(f"{slot.name}: {slot.reason}" for slot in self.slots if slot.reason)

    async def start(self, slots: Iterable[Slot]) -> None:
        """Start the first workers, and wait until each is ready or has failed."""
        for slot in slots:
            self.restart(slot, attempts=1)
        async with self.changed:
            await self.changed.wait_for(lambda: not self.starting)
        self.spawn(self._poll_for_ever())

    def restart(self, slot: Slot, attempts: int = MAX_FAILURES) -> None:
        """Start a worker in a slot, unless it has one or was given up."""
        if slot not in self.slots:
            self.slots.append(slot)
        if slot.worker is None and not slot.starting and not slot.given_up and not self.closing:
            slot.starting = True
            self.spawn(self._restart(slot, attempts))

    async def worker_lost(self, worker: Worker, reason: str) -> None:
        """Kill an unusable worker, and start another one in its slot."""
        slot = worker.slot
        if slot.worker is worker and not self.closing:
            slot.worker = None
            self._note_failure(slot, reason)
            self.restart(slot)
            await worker.handle.kill()
        await self.notify()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine as a task, which `close` cancels."""
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
        """Start a worker and wait until it is ready; return False if that failed."""
        handle: WorkerHandle | None = None
        worker: Worker | None = None
        try:
            handle = await self.start_worker(slot)
            async with asyncio.timeout(OPEN_SECONDS):
                worker = Worker(slot, handle, await handle.call("open"))
            slot.worker = worker
            self._all_workers.append(worker)
        except TimeoutError:
            self._note_failure(slot, f"no worker was ready after {OPEN_SECONDS:.0f} s: is the machine busy?")
        except Exception as error:  # A failure in one slot must not stop the others.
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
        """Notify the tasks that wait for `changed`."""
        async with self.changed:
            self.changed.notify_all()

    async def _poll_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self.poll_seconds)
            await self.poll()
            await asyncio.gather(*(self.ask_report(worker) for worker in self.workers()))

    async def ask_report(self, worker: Worker) -> None:
        """Poll a worker's messages and statistics. Errors are ignored: its games fail if it is lost."""
        try:
            async with asyncio.timeout(self.poll_seconds):
                self._take_report(worker, await worker.handle.call("report"))
        except (WorkerLostError, TimeoutError):
            return

    async def _close_worker(self, worker: Worker) -> None:
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                self._take_report(worker, await worker.handle.call("close"))
        except (WorkerLostError, TimeoutError) as error:
            self.log(f"{worker.slot.name} did not end by itself: {first_line(error)}")
        finally:
            await worker.handle.kill()

    def _take_report(self, worker: Worker, report: WorkerReport) -> None:
        worker.statistics, messages = report
        worker.reported_at = perf_counter()
        for message in messages:
            self.log(f"{worker.slot.name}: {message}")
