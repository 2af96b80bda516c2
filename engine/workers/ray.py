# SPDX-License-Identifier: GPL-3.0-or-later
"""Games on the nodes of a Ray cluster.

Each node gets one worker process, which plays the games of its tasks on the node's own evaluator, started on
demand. The code is the same as on one machine, so games do not depend on the place. A task is a pair of
games. Only the match's process counts and writes. The pairs of a lost worker are played again elsewhere, and
no game is counted twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import socket
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from engine.workers.executor import (
    ExecutorError,
    Game,
    GameJob,
    Log,
    WorkerContext,
    WorkerLostError,
    WorkerReport,
    first_line,
)
from engine.workers.game_worker import GameWorker
from engine.workers.supervisor import GameSupervisor, Slot
from protocol.common.folders import expanded
from protocol.common.printing import failing_as

PROBE_SECONDS = 5.0
"""Timeout for a connection to the cluster's address."""

MAX_TASKS = 4096
"""Maximum concurrent tasks of a worker."""


async def ray_executor(job: GameJob[Game], log: Log, *, address: str) -> RayExecutor[Game]:
    """Return an executor on the cluster at an address, without opening it.

    address: as for `ray.init` ("auto", host:port, ray://…).
    """
    return RayExecutor(address, job, log)


class RayExecutor(GameSupervisor[Game]):
    """An executor whose slots are the nodes of a Ray cluster."""

    games_per_task = 2

    def __init__(self, address: str, job: GameJob[Game], log: Log) -> None:
        super().__init__(lambda text: log(f"worker on {text}"))
        self._address = address
        self._job = job
        self._nodes: dict[str, Slot] = {}
        self._gpus: dict[Slot, tuple[str, float]] = {}
        self._networks: list[Any] = []
        self._names: list[str] = []
        self._connected = False

    async def open(self) -> int:
        await asyncio.to_thread(self._connect)
        slots = await self._empty_slots()
        if not slots:
            raise ExecutorError(f"the Ray cluster at {self._address} has no node with a CPU to work on")
        await self.start(slots)
        if not self.workers():
            raise ExecutorError(self.exhausted())
        return sum(worker.capacity for worker in self.workers())

    async def close(self) -> None:
        await super().close()
        if self._connected:
            import ray

            await asyncio.to_thread(ray.shutdown)
            self._connected = False

    async def poll(self) -> None:
        """Start workers on new nodes and on those that lost theirs."""
        for slot in await self._empty_slots():
            self.restart(slot, attempts=1)

    async def start_worker(self, slot: Slot) -> _ActorHandle:
        """Create an actor on the slot's node."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        # Request all the node's GPUs: Ray hides the others from the worker.
        identity, gpus = self._gpus[slot]
        made = ray.remote(_NodeWorker).options(
            num_cpus=1,
            num_gpus=gpus,
            max_concurrency=MAX_TASKS,
            scheduling_strategy=NodeAffinitySchedulingStrategy(identity, soft=False),
        )
        return _ActorHandle(made.remote(self._job, self._names), self._networks)

    def exhausted(self) -> str:
        return f"no node of the Ray cluster at {self._address} can play ({self.reasons()})"

    def _connect(self) -> None:
        # Disables Ray's usage reports for a cluster started from here (address `local`). A running cluster
        # keeps its own setting.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray
        except ImportError:
            raise ExecutorError("a cluster needs Ray: pip install '.[cluster]'") from None
        self._probe()
        try:
            ray.init(address=self._address, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:  # Ray raises many kinds, ConnectionError and ValueError among them.
            raise ExecutorError(f"no Ray cluster at {self._address}: {first_line(error)}") from None
        self._connected = True
        from engine.evaluation.link.link import is_shipped

        for path in dict.fromkeys(options.weights for options in self._job.engines if options.weights):
            if is_shipped(path):
                continue  # The nodes have included networks, too.
            with failing_as(ExecutorError, f"cannot read the network {path}"):
                content = expanded(path).read_bytes()
            self._names.append(path)
            self._networks.append(ray.put(content))

    def _probe(self) -> None:
        """Raise ExecutorError at once if the address refuses connections; Ray would retry for minutes."""
        host, _, port = self._address.removeprefix("ray://").rpartition(":")
        if not host or not port.isdecimal():
            return
        try:
            socket.create_connection((host.strip("[]"), int(port)), PROBE_SECONDS).close()
        except (OSError, OverflowError) as error:
            raise ExecutorError(f"no Ray cluster at {self._address}: {first_line(error)}") from None

    async def _empty_slots(self) -> list[Slot]:
        """Return the nodes without a worker that can have one."""
        import ray

        slots = []
        for entry in await asyncio.to_thread(ray.nodes):
            identity, resources = entry["NodeID"], entry["Resources"]
            if not entry["Alive"] or resources.get("CPU", 0) < 1:
                continue
            slot = self._nodes.setdefault(identity, Slot(entry["NodeManagerHostname"]))
            self._gpus[slot] = identity, resources.get("GPU", 0)
            if slot.worker is None:
                slots.append(slot)
        return slots


class _ActorHandle:
    """The supervisor's WorkerHandle of a worker on a node."""

    def __init__(self, actor: Any, networks: Sequence[Any]) -> None:
        self._actor = actor
        self._networks = networks

    async def call(self, method: str, *arguments: Any) -> Any:
        from ray.exceptions import RayError, RayTaskError

        if method == "open":
            arguments = tuple(self._networks)
        try:
            return await getattr(self._actor, method).remote(*arguments)
        except RayTaskError as error:
            # The worker lives, but its games failed, for example because its evaluator is lost permanently.
            raise WorkerLostError(str(error.cause)) from None
        except RayError as error:
            raise WorkerLostError(first_line(error)) from None

    async def kill(self) -> None:
        import ray

        with suppress(Exception):  # It may be dead, and its node with it.
            ray.kill(self._actor)


class _NodeWorker(GameWorker):
    """A worker process on a node, as a Ray actor. It receives the content of network files."""

    def __init__(self, job: GameJob[Any], names: Sequence[str]) -> None:
        super().__init__(job, WorkerContext())
        self._names = names
        self._folder = tempfile.TemporaryDirectory(prefix="wavefront-")

    async def open(self, *networks: bytes) -> int:
        """Write the network files, prepare, and return the best number of concurrent games."""
        paths: dict[str, str] = {}
        for name, content in zip(self._names, networks, strict=True):
            path = Path(self._folder.name, hashlib.sha256(content).hexdigest()[:16], Path(name).name)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
            paths[name] = str(path)
        self.context = WorkerContext(networks=paths)
        return await super().open()

    async def close(self) -> WorkerReport:
        """Stop the games and the evaluator, delete the network files, and return the last report."""
        report = await super().close()
        self._folder.cleanup()
        return report
