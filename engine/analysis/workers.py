# SPDX-License-Identifier: GPL-3.0-or-later
"""Positions searched by worker processes, all on the same evaluators.

    scheduler's thread      SearchWorkers: which worker gets a position, which positions are in flight where
    a thread with a loop    WorkerSupervisor: starts workers, and others for those that are lost
    threads of connections  what workers say is handed to the scheduler's thread

An answer comes from its worker as it goes to the client. A worker has no more positions than it searches:
those that wait stay with the scheduler, so that priorities hold for all workers together.
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
"""After which another worker is tried in a slot that was given up."""


@dataclass(eq=False, slots=True)
class _Searching:
    """A worker that is ready and the numbers of the positions in flight there."""

    worker: Worker
    process: WorkerProcess
    under_way: set[int] = field(default_factory=set)


class SearchWorkers:
    """A Searcher that has worker processes search."""

    def __init__(
        self,
        count: int,
        job: AnalysisJob,
        pool: SearchPool,
        listener: FarListener,
        post: Post,
        log: Callable[[str], None],
    ) -> None:
        """pool: has the connections to the evaluators, and searches nothing."""
        self._listener = listener
        self._post = post
        self._ready: dict[Worker, _Searching] = {}
        self._where: dict[int, _Searching] = {}
        self._packed = (0, b"")  # The query that was begun last, by its number.
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
        chosen = min(self._ready.values(), key=lambda each: len(each.under_way))
        chosen.under_way.add(position.number)
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
            )
        )

    def stop(self, number: int) -> None:
        searching = self._where.get(number)
        if searching is not None:
            searching.process.tell(("stop", number))

    def clear_cache(self) -> None:
        for searching in self._ready.values():
            searching.process.tell(("clear_cache",))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._started.wait()
            self._loop.call_soon_threadsafe(self._ending.set)
            self._thread.join()

    # -- from the workers and their supervisor, in any thread --------------------------------------------

    def hear(self, message: Any) -> None:
        """Take what a worker says."""
        self._post(lambda: self._heard(*message))

    def came(self, worker: Worker, process: WorkerProcess) -> None:
        """A worker is ready."""
        self._post(lambda: self._came(worker, process))

    def went(self, worker: Worker, reason: str) -> None:
        """A worker is gone, and all that it has said was heard."""
        self._post(lambda: self._went(worker, reason))

    def gave_up(self, reason: str) -> None:
        """There is no worker any more, and none to be expected."""
        self._post(lambda: self._listener.gave_up(reason))

    # -- the scheduler's thread --------------------------------------------------------------------------

    def _heard(self, what: str, number: int, answer: bytes, evaluator_lost: bool = False) -> None:
        if what == "reported":
            self._listener.reported(number, answer)
            return
        searching = self._where.pop(number)
        searching.under_way.discard(number)
        searching.worker.slot.failures = 0
        self._listener.ended(number, answer, evaluator_lost)

    def _came(self, worker: Worker, process: WorkerProcess) -> None:
        self._ready[worker] = _Searching(worker, process)
        self._listener.changed()

    def _went(self, worker: Worker, reason: str) -> None:
        searching = self._ready.pop(worker)
        for number in searching.under_way:
            del self._where[number]
        self._listener.lost(sorted(searching.under_way), reason)

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
    """The worker processes: looked after as those that play games are, but without an end. Belongs to the
    event loop."""

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
        """Slots without a worker, and since when (monotonic seconds)."""

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
        if first:  # All that it has said has been heard.
            self._owner.went(worker, reason)

    async def notify(self) -> None:
        await super().notify()
        if self._in_use and not self.workers() and not self.starting and not self.closing:
            self._in_use = False
            self._owner.gave_up(self.exhausted())

    async def poll(self) -> None:
        """Replace workers whose evaluator is gone, and try again in slots that were given up long ago."""
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
        """Replace a worker when its process has ended, whether or not it was asked for something."""
        await self.worker_lost(worker, await _process(worker).gone())


def _process(worker: Worker) -> WorkerProcess:
    assert isinstance(worker.handle, WorkerProcess)
    return worker.handle
