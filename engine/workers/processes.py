# SPDX-License-Identifier: GPL-3.0-or-later
"""Searches in several processes of this machine, all on the same evaluators.

One process feeds an evaluator with what one thread can collect. The evaluators belong to the process that
hands out the work: it finds or starts them and has them load the networks, and the workers connect to them,
so that the positions of all workers' searches share batches.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from itertools import chain
from time import monotonic
from typing import TYPE_CHECKING

from engine.evaluation.connection import keepalive
from engine.evaluation.connection.connecting import served_network
from engine.evaluation.connection.process import EvaluatorSettings
from engine.evaluation.errors import NoEvaluatorError
from engine.workers.child import WorkerProcess
from engine.workers.executor import (
    ExecutorError,
    Game,
    GameJob,
    Job,
    LoadedNetwork,
    Log,
    WorkerContext,
    WorkerLostError,
)
from engine.workers.playing import GameSupervisor
from engine.workers.supervisor import Slot, Supervisor
from engine.workers.worker_role import GameWorker, MakeRole, Say

if TYPE_CHECKING:
    from engine.evaluation.connection.link import EvaluatorLink
    from engine.pool.pool import SearchPool
    from protocol.client import EvaluatorClient

KNOCK_SECONDS = 5.0
"""Between two times that an evaluator of the engine's own is asked whether it is there."""

CONNECT_ATTEMPTS = 3
"""Evaluators in a row that may be gone as soon as a worker is to be sent there."""


class WorkerProcesses(Supervisor):
    """Worker processes, and the evaluators that they share."""

    poll_seconds = 0.5

    def __init__(
        self,
        workers: int,
        role: MakeRole,
        job: Job,
        log: Log,
        pool: SearchPool | None,
        hear: Say = lambda message: None,
    ) -> None:
        """role: made in each worker of the job. pool: has the connections to the evaluators, if the job
        needs any. hear: gets what workers say unasked, in threads of their connections."""
        super().__init__(log)
        self._role = role
        self._job = job
        self._pool = pool
        self._workers = workers
        self._hear = hear
        self._loaded: dict[EvaluatorSettings, LoadedNetwork] = {}
        self._loading = asyncio.Lock()
        self._next_knocks: dict[EvaluatorLink, float] = {}
        """When (monotonic seconds)."""
        self._given: dict[Slot, set[str]] = {}
        """Addresses of the evaluators that the last worker of a slot was sent to."""

    async def open(self) -> int:
        """Start the workers; returns how many searches at once are best. Raises ExecutorError."""
        slots = [Slot(f"worker {number}") for number in range(1, self._workers + 1)]
        await self.start(slots)
        for slot in slots:
            # What stops one from the start would stop the others as well.
            if slot.worker is None:
                raise ExecutorError(slot.reason)
        # Each worker says what is best for all of them together: they share the evaluators.
        return max(worker.capacity for worker in self.workers())

    async def start_worker(self, slot: Slot) -> WorkerProcess:
        """Start a worker process once the evaluators have the job's networks. Raises WorkerLostError."""
        try:
            loaded = await self.load_networks()
        except NoEvaluatorError as error:
            raise WorkerLostError(str(error)) from None
        self._given[slot] = {network.address for network in loaded.values()}
        context = WorkerContext(loaded=loaded, processes=self._workers)
        return await WorkerProcess.start(self._role, self._job, context, self._hear)

    async def poll(self) -> None:
        """Replace the workers when an evaluator has ended: the next one will be at another address. One that
        hangs is ended: the workers cannot tell it from one of somebody else's, which is left alone."""
        for link in self._links():
            if link.settings.address:
                continue
            client = link.client
            if client is not None and link.pid is None:
                link.lost(client, "its process has ended")
                client = None
            elif client is not None:
                self._check_alive(link, client)
            for worker in self.workers():
                if client is None or client.address not in self._given[worker.slot]:
                    await self.worker_lost(worker, "its evaluator is gone; another one is being started")

    def _check_alive(self, link: EvaluatorLink, client: EvaluatorClient) -> None:
        """Ask an evaluator of the engine's own now and then whether it is there."""
        now = monotonic()
        if now >= self._next_knocks.setdefault(link, now + KNOCK_SECONDS):
            self._next_knocks[link] = float("inf")
            self.spawn(self._knock(link, client))

    async def _knock(self, link: EvaluatorLink, client: EvaluatorClient) -> None:
        try:
            if not await asyncio.to_thread(_answers, client.address):
                link.end_silent(client)
        finally:
            self._next_knocks[link] = monotonic() + KNOCK_SECONDS

    def exhausted(self) -> str:
        return f"no worker process is left ({self.reasons()})"

    # -- evaluators --------------------------------------------------------------------------------------

    def _links(self) -> list[EvaluatorLink]:
        if self._pool is None:
            return []
        links = (self._pool.links(options) for options in self._job.engines)
        return list(dict.fromkeys(chain.from_iterable(links)))

    async def load_networks(self) -> dict[EvaluatorSettings, LoadedNetwork]:
        """Have the evaluators load the job's networks. Waits for them. Raises NoEvaluatorError."""
        async with self._loading:  # One after the other: a network is not to be loaded twice.
            return await asyncio.to_thread(self._load_networks)

    def _load_networks(self) -> dict[EvaluatorSettings, LoadedNetwork]:
        """The networks of all players, loaded where they were not. Waits for the evaluators.

        Raises NoEvaluatorError.
        """
        loaded: dict[EvaluatorSettings, LoadedNetwork] = {}
        for options in self._job.engines:
            settings = EvaluatorSettings.of(options)
            if settings in loaded:
                continue
            assert self._pool is not None
            link, *others = self._pool.links(options)
            if others:  # Each worker finds the network at each address.
                self._load_everywhere([link, *others], settings)
                continue
            with self._connect(link) as client:
                known = self._loaded.get(settings)
                if known is None or known.address != client.address or not _serves(client, known.network):
                    known = LoadedNetwork(client.address, _network(client, link, settings))
                loaded[settings] = known
        self._loaded = loaded
        return loaded

    def _load_everywhere(self, links: Sequence[EvaluatorLink], settings: EvaluatorSettings) -> None:
        """Have the evaluators at several addresses load a network before the workers ask for it, all at once.

        Raises NoEvaluatorError if none of them can.
        """
        errors: list[NoEvaluatorError] = []
        for link in links:
            link.start()
            try:
                with self._connect(link) as client:
                    _network(client, link, settings)
            except NoEvaluatorError as error:
                errors.append(error)
        if len(errors) == len(links):
            raise NoEvaluatorError("; ".join(map(str, errors)))

    def _connect(self, link: EvaluatorLink) -> EvaluatorClient:
        """A connection of our own to an evaluator that answers; one that does not is replaced or sought anew.

        Raises NoEvaluatorError.
        """
        from protocol.client import EvaluatorClient
        from protocol.errors import EvaluatorError

        reason = ""
        for _ in range(CONNECT_ATTEMPTS):
            while (first := link.wait(1.0)) is None:
                if self.closing:
                    raise NoEvaluatorError("the match is over")
            try:
                client = EvaluatorClient(first.address, name=f"match {os.getpid()}", keys=link.settings.keys)
            except EvaluatorError as error:
                reason = str(error)
            else:
                if _serves(client, first.network.name):
                    return client
                client.close()
                reason = "it has been started anew"
            link.lost(first, reason)
        raise NoEvaluatorError(f"the evaluator is lost again and again: {reason}")


class ProcessExecutor(WorkerProcesses, GameSupervisor[Game]):
    """Games in worker processes."""

    def __init__(self, workers: int, job: GameJob[Game], log: Log, pool: SearchPool | None) -> None:
        """pool: closed with the executor."""
        super().__init__(workers, GameWorker, job, log, pool)
        self._evaluators = pool

    async def close(self) -> None:
        """End the workers, and then the evaluators that were started for them."""
        await super().close()
        if self._evaluators is not None:
            await asyncio.to_thread(self._evaluators.close)


def _answers(address: str) -> bool:
    """Whether an evaluator says that it is there, for which it has as long as one that owes answers."""
    from protocol.client import EvaluatorClient
    from protocol.errors import EvaluatorError, RemoteError

    try:
        EvaluatorClient(address, timeout=keepalive.PATIENCE_SECONDS, name="keepalive").close()
    except RemoteError:  # It refuses, so it is there.
        return True
    except EvaluatorError:
        return False
    return True


def _serves(client: EvaluatorClient, name: str) -> bool:
    return any(network.name == name for network in client.networks)


def _network(client: EvaluatorClient, link: EvaluatorLink, settings: EvaluatorSettings) -> str:
    """What the evaluator calls the network of these settings. Raises NoEvaluatorError."""
    from protocol.errors import EvaluatorError

    first = link.client
    if first is not None and link.settings.network == settings.network:
        return first.network.name
    try:
        return served_network(client, settings.network).name
    except EvaluatorError as error:
        raise NoEvaluatorError(f"the evaluator cannot serve {settings.weights!r}: {error}") from None
