# SPDX-License-Identifier: GPL-3.0-or-later
"""Searches of positions in worker processes, on the same evaluators.

    scheduler's thread      SearchWorkers: which worker gets a position, which positions are in flight where
    a thread with a loop    WorkerSupervisor: starts workers and replaces lost ones
    threads of connections  pass workers' messages to the scheduler's thread

Workers encode the answers for the client. They hold only running positions. Waiting ones stay with the
scheduler, so that priorities apply to all workers together.
"""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

from engine.analysis.searching import FarListener, Position, Post
from engine.analysis.worker import AnalysisJob, PositionWorker
from engine.evaluation.errors import NoEvaluatorError
from engine.workers.child import WorkerProcess
from engine.workers.executor import ExecutorError
from engine.workers.processes import WorkerProcesses
from engine.workers.supervisor import Slot, Worker

if TYPE_CHECKING:
    from engine.pool.pool import SearchPool

RETRY_SECONDS = 30.0
"""Time after which a worker is started again in a slot that was given up."""


@dataclass(eq=False, slots=True)
class _Searching:
    """A ready worker and the numbers of its running positions."""

    worker: Worker
    process: WorkerProcess
    in_flight: set[int] = field(default_factory=set)


class SearchWorkers:
    """A Searcher with worker processes."""

    def __init__(
        self,
        count: int,
        job: AnalysisJob,
        pool: SearchPool,
        listener: FarListener,
        post: Post,
        log: Callable[[str], None],
    ) -> None:
        """pool: only holds the connections to the evaluators."""
        self._listener = listener
        self._post = post
        self._ready: dict[Worker, _Searching] = {}
        self._where: dict[int, _Searching] = {}
        self._packed = (0, b"")  # Number and data of the last query.
        self._make: Callable[[], WorkerSupervisor] = lambda: WorkerSupervisor(count, job, pool, self, log)
        self._closed = False
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._work, name="analysis-workers", daemon=True)
        self._thread.start()

    # -- a Searcher --------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        return bool(self._ready)

    def open(self) -> None:
        self._started.wait()
        ready = asyncio.run_coroutine_threadsafe(self._supervisor.get_ready(), self._loop)
        try:
            ready.result()
        except ExecutorError as error:
            raise NoEvaluatorError(str(error)) from None

    def begin(self, position: Position) -> None:
        chosen = min(self._ready.values(), key=lambda each: len(each.in_flight))
        chosen.in_flight.add(position.number)
        self._where[position.number] = chosen
        if self._packed[0] != position.query_number:
            self._packed = position.query_number, pickle.dumps(position.query)
        chosen.process.tell(
            (
                "begin",
                *self._packed,
                position.number,
                position.turn,
                position.network,
                position.tree_memory,
                position.hash,
                position.owner,
            )
        )

    def stop(self, number: int) -> None:
        searching = self._where.get(number)
        if searching is not None:
            searching.process.tell(("stop", number))

    def clear_cache(self, owner: str) -> None:
        for searching in self._ready.values():
            searching.process.tell(("clear_cache", owner))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._started.wait()
            self._loop.call_soon_threadsafe(self._ending.set)
            self._thread.join()

    # -- callbacks of the workers and their supervisor, thread-safe --------------------------------------

    def hear(self, message: Any) -> None:
        """Handle a worker's message."""
        self._post(lambda: self._heard(*message))

    def came(self, worker: Worker, process: WorkerProcess) -> None:
        """Add a ready worker."""
        self._post(lambda: self._came(worker, process))

    def went(self, worker: Worker, reason: str) -> None:
        """Remove a worker that is gone, after all its messages were handled."""
        self._post(lambda: self._went(worker, reason))

    def gave_up(self, reason: str) -> None:
        """Report that no worker is left and none is starting."""
        self._post(lambda: self._listener.gave_up(reason))

    # -- the scheduler's thread --------------------------------------------------------------------------

    def _heard(self, what: str, number: int, answer: bytes, evaluator_lost: bool = False) -> None:
        if what == "reported":
            self._listener.reported(number, answer)
            return
        searching = self._where.pop(number)
        searching.in_flight.discard(number)
        searching.worker.slot.failures = 0
        self._listener.ended(number, answer, evaluator_lost)

    def _came(self, worker: Worker, process: WorkerProcess) -> None:
        self._ready[worker] = _Searching(worker, process)
        self._listener.changed()

    def _went(self, worker: Worker, reason: str) -> None:
        searching = self._ready.pop(worker)
        for number in searching.in_flight:
            del self._where[number]
        self._listener.lost(sorted(searching.in_flight), reason)

    # -- the thread with the loop ------------------------------------------------------------------------

    def _work(self) -> None:
        asyncio.run(self._supervise())

    async def _supervise(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ending = asyncio.Event()
        self._supervisor = self._make()
        self._started.set()
        await self._ending.wait()
        await self._supervisor.close()


class WorkerSupervisor(WorkerProcesses):
    """Supervision of the worker processes, as for games, but indefinitely. Only the event loop may use it."""

    def __init__(
        self,
        count: int,
        job: AnalysisJob,
        pool: SearchPool,
        owner: SearchWorkers,
        log: Callable[[str], None],
    ) -> None:
        super().__init__(count, PositionWorker, job, log, pool, owner.hear)
        self._owner = owner
        self._count = count
        self._in_use = False
        self._empty: dict[Slot, float] = {}
        """Slots without a worker, and the start of that state in monotonic seconds."""

    async def get_ready(self) -> None:
        """Wait until there is a worker. Raises ExecutorError and NoEvaluatorError."""
        if not self.slots:
            await self.start([Slot(f"worker {number}") for number in range(1, self._count + 1)])
        else:
            await self.load_networks()
            for worker in self.workers():
                _process(worker).tell(("reconnect",))
            for slot in self.slots:
                slot.failures = 0
                self.restart(slot)
            async with self.changed:
                await self.changed.wait_for(lambda: self.workers() or not self.starting)
        if not self.workers():
            raise ExecutorError(self.exhausted())
        self._in_use = True

    def worker_ready(self, worker: Worker) -> None:
        super().worker_ready(worker)
        self._owner.came(worker, _process(worker))
        self.spawn(self._watch(worker))

    async def worker_lost(self, worker: Worker, reason: str) -> None:
        first = worker.slot.worker is worker
        await super().worker_lost(worker, reason)
        if first:  # All its messages have been handled.
            self._owner.went(worker, reason)

    async def notify(self) -> None:
        await super().notify()
        if self._in_use and not self.workers() and not self.starting and not self.closing:
            self._in_use = False
            self._owner.gave_up(self.exhausted())

    async def poll(self) -> None:
        """Replace workers whose evaluator is gone, and retry slots that were given up RETRY_SECONDS ago."""
        await super().poll()
        now = monotonic()
        for slot in self.slots:
            if slot.worker is not None or slot.starting or not self.workers():
                self._empty.pop(slot, None)
            elif now - self._empty.setdefault(slot, now) >= RETRY_SECONDS:
                del self._empty[slot]
                slot.failures = 0
                self.restart(slot)

    async def _watch(self, worker: Worker) -> None:
        """Replace a worker when its process has ended, even if it was idle."""
        await self.worker_lost(worker, await _process(worker).gone())


def _process(worker: Worker) -> WorkerProcess:
    assert isinstance(worker.handle, WorkerProcess)
    return worker.handle
