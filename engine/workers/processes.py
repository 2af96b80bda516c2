# SPDX-License-Identifier: GPL-3.0-or-later
"""Searches in several processes of this machine, on the same evaluators.

One process can only supply what one thread collects. The supervising process owns the evaluators: it connects
to or starts them and lets them load the networks. The workers connect to them, too, so that the positions of
all searches share batches.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from itertools import chain
from time import perf_counter
from typing import TYPE_CHECKING

from engine.evaluation.errors import NoEvaluatorError
from engine.evaluation.link import health
from engine.evaluation.link.link import served_network
from engine.evaluation.link.process import EvaluatorSettings
from engine.workers.child import WorkerProcess
from engine.workers.executor import (
    ExecutorError,
    Game,
    GameJob,
    LoadedNetwork,
    Log,
    WorkerContext,
    WorkerLostError,
)
from engine.workers.supervisor import GameSupervisor, Slot

if TYPE_CHECKING:
    from engine.evaluation.link.link import EvaluatorLink
    from engine.search.pool import SearchPool
    from protocol.client import EvaluatorClient

KNOCK_SECONDS = 5.0
"""Interval of keepalives to an embedded evaluator."""

CONNECT_ATTEMPTS = 3
"""Maximum consecutive evaluators that are lost before a worker can use them."""


class ProcessExecutor(GameSupervisor[Game]):
    """Games in worker processes, and the evaluators that they share."""

    poll_seconds = 0.5

    def __init__(
        self,
        workers: int,
        job: GameJob[Game],
        log: Log,
        pool: SearchPool | None,
    ) -> None:
        """pool: has the connections to the evaluators, if the job needs any; closed with the executor."""
        super().__init__(log)
        self._job = job
        self._pool = pool
        self._workers = workers
        self._loaded: dict[EvaluatorSettings, LoadedNetwork] = {}
        self._loading = asyncio.Lock()
        self._next_knocks: dict[EvaluatorLink, float] = {}
        """Time of the next keepalive, in monotonic seconds."""
        self._addresses: dict[Slot, set[str]] = {}
        """Addresses of the evaluators of a slot's last worker."""

    async def open(self) -> int:
        """Start the workers, and return the best number of concurrent searches. Raises ExecutorError."""
        slots = [Slot(f"worker {number}") for number in range(1, self._workers + 1)]
        await self.start(slots)
        for slot in slots:
            # A reason that stops one worker at the start would stop the others, too.
            if slot.worker is None:
                raise ExecutorError(slot.reason)
        # Each worker returns the best number for all together, as they share the evaluators.
        return max(worker.capacity for worker in self.workers())

    async def close(self) -> None:
        """Stop the workers, and then the embedded evaluators."""
        await super().close()
        if self._pool is not None:
            await asyncio.to_thread(self._pool.close)

    async def start_worker(self, slot: Slot) -> WorkerProcess:
        """Start a worker process once the evaluators have the job's networks. Raises WorkerLostError."""
        try:
            loaded = await self.load_networks()
        except NoEvaluatorError as error:
            raise WorkerLostError(str(error)) from None
        self._addresses[slot] = {network.address for network in loaded.values()}
        context = WorkerContext(loaded=loaded, processes=self._workers)
        return await WorkerProcess.start(self._job, context)

    async def poll(self) -> None:
        """Replace the workers of an ended evaluator, because the next one has another address. Kill a hung
        embedded one: workers cannot distinguish it from one that does not belong to the engine."""
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
                if client is None or client.address not in self._addresses[worker.slot]:
                    await self.worker_lost(worker, "its evaluator is gone; another one is being started")

    def _check_alive(self, link: EvaluatorLink, client: EvaluatorClient) -> None:
        """Send a keepalive to an embedded evaluator at intervals."""
        now = perf_counter()
        if now >= self._next_knocks.setdefault(link, now + KNOCK_SECONDS):
            self._next_knocks[link] = float("inf")
            self.spawn(self._knock(link, client))

    async def _knock(self, link: EvaluatorLink, client: EvaluatorClient) -> None:
        try:
            if not await asyncio.to_thread(_answers, client.address):
                link.kill_silent(client)
        finally:
            self._next_knocks[link] = perf_counter() + KNOCK_SECONDS

    def exhausted(self) -> str:
        return f"no worker process is left ({self.reasons()})"

    # -- evaluators --------------------------------------------------------------------------------------

    def _links(self) -> list[EvaluatorLink]:
        if self._pool is None:
            return []
        links = (self._pool.links(options) for options in self._job.engines)
        return list(dict.fromkeys(chain.from_iterable(links)))

    async def load_networks(self) -> dict[EvaluatorSettings, LoadedNetwork]:
        """Let the evaluators load the job's networks, and wait for them. Raises NoEvaluatorError."""
        async with self._loading:  # One at a time, so that no network is loaded twice.
            return await asyncio.to_thread(self._load_networks)

    def _load_networks(self) -> dict[EvaluatorSettings, LoadedNetwork]:
        """Return the networks of all players, loaded if necessary. Waits for the evaluators.

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
        """Let the evaluators at several addresses load a network before all workers request it at once.

        Raises NoEvaluatorError if none can.
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
        """Return a new connection to an evaluator. One that does not answer is restarted or replaced.

        Raises NoEvaluatorError.
        """
        from protocol.client import EvaluatorClient
        from protocol.errors import EvaluatorFailure

        reason = ""
        for _ in range(CONNECT_ATTEMPTS):
            while (first := link.wait(1.0)) is None:
                if self.closing:
                    raise NoEvaluatorError("the match is over")
            try:
                client = EvaluatorClient(first.address, name=f"match {os.getpid()}", keys=link.settings.keys)
            except EvaluatorFailure as error:
                reason = str(error)
            else:
                if _serves(client, first.network.name):
                    return client
                client.close()
                reason = f"it was restarted without network {first.network.name}"
            link.lost(first, reason)
        raise NoEvaluatorError(
            f"cannot connect to the evaluator ({CONNECT_ATTEMPTS} attempts): {reason}; see its log"
        )


def _answers(address: str) -> bool:
    """Return True if an evaluator answers within the timeout of a keepalive."""
    from protocol.client import EvaluatorClient
    from protocol.errors import EvaluatorFailure, RemoteError

    try:
        EvaluatorClient(address, timeout=health.PATIENCE_SECONDS, name="keepalive").close()
    except RemoteError:  # A refusal is an answer, too.
        return True
    except EvaluatorFailure:
        return False
    return True


def _serves(client: EvaluatorClient, name: str) -> bool:
    return any(network.name == name for network in client.networks)


def _network(client: EvaluatorClient, link: EvaluatorLink, settings: EvaluatorSettings) -> str:
    """Return the evaluator's name for the network of these settings. Raises NoEvaluatorError."""
    from protocol.errors import EvaluatorFailure

    first = link.client
    if first is not None and link.settings.network == settings.network:
        return first.network.name
    try:
        return served_network(client, settings.network).name
    except EvaluatorFailure as error:
        raise NoEvaluatorError(f"the evaluator cannot serve {settings.weights!r}: {error}") from None
