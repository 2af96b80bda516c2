"""Games on the nodes of a Ray cluster.

Each node gets one worker process, which plays the games of its tasks on that node's own evaluator, started
when the worker needs it: the same code as on one machine, so that games do not depend on where they are
played. A task is a pair of games. Only the process that runs the match counts and writes; when a worker is
lost its pairs are played again elsewhere, and nothing is there twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import socket
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

from engine.match.place import Game, Job, Log, MakePlace, Place, PlaceError

if TYPE_CHECKING:
    from engine.pool import PoolStatistics

PROBE_SECONDS = 5.0
"""How long the cluster's address may take to answer at all."""

OPEN_SECONDS = 600.0
"""How long a worker may take to start its evaluator; a large network takes minutes the first time."""

WATCH_SECONDS = 2.0
"""Time between two looks at the cluster: for new nodes, messages and statistics of workers."""

MAX_FAILURES = 3
"""Workers in a row that may fail on one node before it is left out."""

CLOSE_SECONDS = 10.0
"""How long a worker may take to end its games and its evaluator."""

MAX_TASKS = 4096
"""Tasks that one worker takes at the same time."""


def cluster_place(address: str) -> MakePlace[Any]:
    """Makes places on the cluster at an address, as `ray.init` takes it ("auto", host:port, ray://…)."""

    def make(job: Job[Game], log: Log) -> Place[Game]:
        return ClusterPlace(address, job, log)

    return make


@dataclass(eq=False, slots=True)
class _Worker:
    """A worker process, as the match sees it. load: games under way there."""

    node: str
    name: str
    actor: Any
    capacity: int = 0
    load: int = 0
    statistics: PoolStatistics | None = None


@dataclass(slots=True)
class _Node:
    """A node of the cluster. starting: a worker is on its way."""

    name: str
    gpus: float
    failures: int = 0
    starting: bool = False
    worker: _Worker | None = None
    reason: str = ""

    @property
    def hopeless(self) -> bool:
        return self.failures >= MAX_FAILURES


class ClusterPlace(Generic[Game]):
    """All nodes of a Ray cluster as one place."""

    games_per_task = 2

    def __init__(self, address: str, job: Job[Game], log: Log) -> None:
        self._address = address
        self._job = job
        self._log = log
        self._nodes: dict[str, _Node] = {}
        self._all_workers: list[_Worker] = []
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()
        self._networks: list[Any] = []
        self._names: list[str] = []
        self._connected = False
        self._closing = False

    async def open(self) -> int:
        await asyncio.to_thread(self._connect)
        await self._look()
        if not self._nodes:
            raise PlaceError(f"the Ray cluster at {self._address} has no node with a CPU to work on")
        async with self._changed:
            await self._changed.wait_for(lambda: not any(node.starting for node in self._nodes.values()))
        if not self._workers():
            raise PlaceError(self._no_node_left())
        self._spawn(self._watch())
        return sum(worker.capacity for worker in self._workers())

    async def play(self, numbers: Sequence[int]) -> list[Game]:
        from ray.exceptions import RayError, RayTaskError

        while True:
            worker = await self._least_loaded()
            worker.load += len(numbers)
            try:
                games: list[Game] = await worker.actor.play.remote(list(numbers))
                return games
            except RayTaskError as error:
                # The worker lives, but its games do not: its evaluator is gone for good, say.
                await self._lose(worker, str(error.cause))
            except RayError as error:
                await self._lose(worker, _first_line(error))
            finally:
                worker.load -= len(numbers)

    def statistics(self) -> PoolStatistics:
        from engine.pool import PoolStatistics

        known = [worker.statistics for worker in self._all_workers if worker.statistics is not None]
        evaluations = sum(statistics.evaluations for statistics in known)
        batches = sum(s.evaluations / s.mean_batch for s in known if s.mean_batch)
        return PoolStatistics(
            searches=sum(statistics.searches for statistics in known),
            evaluations=evaluations,
            seconds=max((statistics.seconds for statistics in known), default=0.0),
            mean_batch=evaluations / batches if batches else 0.0,
            moves=sum(statistics.moves for statistics in known),
        )

    async def close(self) -> None:
        self._closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if not self._connected:
            return
        import ray

        workers = self._workers()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.gather(*(_ended(worker) for worker in workers), return_exceptions=True)
        for worker in workers:
            ray.kill(worker.actor)
        await asyncio.to_thread(ray.shutdown)
        self._connected = False

    # -- nodes and workers -------------------------------------------------------------------------------

    def _connect(self) -> None:
        try:
            import ray
        except ImportError:
            raise PlaceError("a cluster needs Ray: pip install '.[cluster]'") from None
        self._probe()
        try:
            ray.init(address=self._address, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:  # Ray raises many kinds, ConnectionError and ValueError among them.
            raise PlaceError(f"no Ray cluster at {self._address}: {_first_line(error)}") from None
        self._connected = True
        for path in self._job.networks:
            try:
                content = Path(path).expanduser().read_bytes()
            except OSError as error:
                raise PlaceError(f"cannot read the network {path}: {error.strerror}") from None
            self._names.append(path)
            self._networks.append(ray.put(content))

    def _probe(self) -> None:
        """Fail at once where nobody listens: Ray itself would try for minutes. Raises PlaceError."""
        host, _, port = self._address.removeprefix("ray://").rpartition(":")
        if not host or not port.isdecimal():
            return
        try:
            socket.create_connection((host.strip("[]"), int(port)), PROBE_SECONDS).close()
        except (OSError, OverflowError) as error:
            raise PlaceError(f"no Ray cluster at {self._address}: {_first_line(error)}") from None

    async def _look(self) -> None:
        """Start a worker on each node that can have one and has none."""
        import ray

        for entry in await asyncio.to_thread(ray.nodes):
            identity, resources = entry["NodeID"], entry["Resources"]
            if not entry["Alive"] or resources.get("CPU", 0) < 1:
                continue
            node = self._nodes.setdefault(
                identity, _Node(entry["NodeManagerHostname"], resources.get("GPU", 0))
            )
            if node.worker is None and not node.starting and not node.hopeless:
                node.starting = True
                self._spawn(self._start(identity, node))

    async def _start(self, identity: str, node: _Node) -> None:
        import ray
        from ray.exceptions import RayTaskError
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        actor: Any = None
        try:
            # All the node's GPUs: Ray hides from a worker those that it did not ask for.
            made = ray.remote(_NodeWorker).options(
                num_cpus=1,
                num_gpus=node.gpus,
                max_concurrency=MAX_TASKS,
                scheduling_strategy=NodeAffinitySchedulingStrategy(identity, soft=False),
            )
            actor = made.remote(self._job, self._names)
            async with asyncio.timeout(OPEN_SECONDS):
                capacity = await actor.open.remote(*self._networks)
            node.worker = _Worker(identity, node.name, actor, capacity)
            node.failures = 0
            self._all_workers.append(node.worker)
        except TimeoutError:
            self._failed(node, f"no worker was ready after {OPEN_SECONDS:.0f} s: is the node busy?")
        except RayTaskError as error:
            self._failed(node, str(error.cause))
        except Exception as error:  # Whatever goes wrong on one node, the others play on.
            self._failed(node, _first_line(error))
        finally:
            node.starting = False
            if node.worker is None and actor is not None:
                with suppress(Exception):  # It may be dead already.
                    ray.kill(actor)
            async with self._changed:
                self._changed.notify_all()

    async def _lose(self, worker: _Worker, reason: str) -> None:
        """A worker is of no use any more; its games are played elsewhere."""
        import ray

        node = self._nodes[worker.node]
        if node.worker is worker and not self._closing:
            node.worker = None
            self._failed(node, reason)
            with suppress(Exception):  # It may be dead, and its node with it.
                ray.kill(worker.actor)
            await self._look()
        async with self._changed:
            self._changed.notify_all()

    def _failed(self, node: _Node, reason: str) -> None:
        node.failures += 1
        node.reason = reason
        self._log(f"worker on {node.name} lost: {reason}")

    async def _least_loaded(self) -> _Worker:
        """The worker with the most room, waiting for one if there is hope. Raises PlaceError."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: self._workers() or not any(node.starting for node in self._nodes.values())
            )
        workers = self._workers()
        if not workers:
            raise PlaceError(self._no_node_left())
        return min(workers, key=lambda worker: (worker.load + 1) / max(1, worker.capacity))

    def _workers(self) -> list[_Worker]:
        return [node.worker for node in self._nodes.values() if node.worker is not None]

    def _no_node_left(self) -> str:
        reasons = "; ".join(f"{node.name}: {node.reason}" for node in self._nodes.values() if node.reason)
        return f"no node of the Ray cluster at {self._address} can play ({reasons})"

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            await self._look()
            await asyncio.gather(*(self._ask(worker) for worker in self._workers()))

    async def _ask(self, worker: _Worker) -> None:
        """Take over a worker's messages and statistics. Whether it is lost shows in its tasks."""
        from ray.exceptions import RayError

        with suppress(RayError, TimeoutError):
            async with asyncio.timeout(WATCH_SECONDS):
                worker.statistics, notes = await worker.actor.report.remote()
                for note in notes:
                    self._log(f"{worker.name}: {note}")

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


@dataclass(slots=True)
class _NodeWorker:
    """Runs in a process on a node, as a Ray actor: a place there, and what it has to say."""

    job: Job[Any]
    names: Sequence[str]
    notes: list[str] = field(default_factory=list)
    place: Place[Any] | None = None
    folder: tempfile.TemporaryDirectory[str] | None = None

    async def open(self, *networks: bytes) -> int:
        """Write the network files down and get ready; returns how many games at once are best here."""
        self.folder = tempfile.TemporaryDirectory(prefix="wavefront-")
        paths: dict[str, str] = {}
        for name, content in zip(self.names, networks, strict=True):
            path = Path(self.folder.name, hashlib.sha256(content).hexdigest()[:16], Path(name).name)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
            paths[name] = str(path)
        self.place = self.job.place(self.notes.append, paths)
        return await self.place.open()

    async def play(self, numbers: Sequence[int]) -> list[Any]:
        """Play games at the same time."""
        assert self.place is not None
        return await self.place.play(numbers)

    async def report(self) -> tuple[PoolStatistics, list[str]]:
        """Statistics so far, and the messages since the last report."""
        assert self.place is not None
        notes = self.notes[:]
        del self.notes[: len(notes)]
        return self.place.statistics(), notes

    async def close(self) -> None:
        """End the games and the evaluator."""
        if self.place is not None:
            await self.place.close()
        if self.folder is not None:
            self.folder.cleanup()


async def _ended(worker: _Worker) -> None:
    worker.statistics, _ = await worker.actor.report.remote()
    await worker.actor.close.remote()


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
