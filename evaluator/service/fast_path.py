# SPDX-License-Identifier: GPL-3.0-or-later
"""The fast path: evaluations of one client of a private service on one device, without the interpreter.

The I/O thread takes it if one client sends evaluations, nothing is queued or in flight, and the backend
leases its batch buffers. `evaluator/core/device_loop` then replaces the handlers, the dispatcher and the
replies until other work arrives. If it fails, the dispatcher handles the in-flight requests again.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evaluator.backends.common.buffer_lease import BufferLease
from evaluator.devices.runners import Runner, now_ms
from evaluator.devices.served_network import ServedNetwork
from evaluator.service.connections.hub_sockets import HubSockets
from evaluator.service.connections.transport import Arrived
from evaluator.service.record import ServiceParts
from evaluator.service.sessions import ClientSession
from protocol.wire.messages import PRIORITIES

if sys.platform == "linux":
    from evaluator._core import DeviceLoop

log = logging.getLogger("evaluator.service")

IN_A_ROW = 3
"""Consecutive evaluations of one client after which the next ones are expected from it, too."""

RUN_MS = 100.0
"""Maximum duration of a turn. Then the I/O thread counts the answers and does its other work."""

LATE_MS = 500.0
"""Time limit for a batch or a driver call. Beyond it, the dispatcher handles the requests again."""

PAUSE_S = 5.0
"""Pause of the fast path after a failure."""

CROWDED_S = 0.2
"""Pause of the fast path after a client has sent so many requests at once that merging them is better."""

TROUBLES = {
    "failed": "a call of its driver has failed",
    "late": "a batch takes too long",
    "not finite": "it gave NaN or infinity",
}
"""Stop reasons of the loop that mean a device failure, with their log texts."""

ANSWERED = np.dtype(
    [("arrived", "f8"), ("launched", "f8"), ("ended", "f8"), ("positions", "u4"), ("rank", "u4")]
)
"""Record of `DeviceLoop.answered`. Times are in milliseconds of now_ms."""


@dataclass(slots=True)
class _Turn:
    """One turn on the fast path."""

    session: ClientSession
    network: ServedNetwork
    runner: Runner
    lease: BufferLease
    loop: DeviceLoop


class FastPath:
    """Runs the device loop. Belongs to the I/O thread. sockets: the service's. handle: the normal message
    handler. replace: hands the I/O loop to another thread."""

    def __init__(
        self,
        service: ServiceParts,
        sockets: HubSockets,
        handle: Callable[[Arrived, float], None],
        replace: Callable[[], None],
    ) -> None:
        self._service = service
        self._sockets = sockets
        self._handle = handle
        self._replace = replace
        self._last: tuple[ClientSession, ServedNetwork] | None = None
        self.in_a_row = 0
        """Consecutive evaluations of one client. From IN_A_ROW on, `run` may serve the next."""
        self._not_before = 0.0
        self._loop: tuple[tuple[object, ...], DeviceLoop] | None = None
        self._guard = _Guard(self._taken_over)

    def saw(self, session: ClientSession, network: ServedNetwork) -> None:
        """Note an evaluation that the dispatcher handles."""
        self.in_a_row = self.in_a_row + 1 if self._last == (session, network) else 1
        self._last = session, network

    def run(self) -> bool:
        """Serve the client that is probably the only active one, if it has sent something.

        Returns False if another thread is the I/O thread now."""
        run = self._begin()
        if run is None:
            return True
        if not self._sockets.wakeup.falls_asleep():
            self._end(run)
            return True
        stop = self._serve(run)
        self._count(run, stop)
        if stop == "taken":
            self._guard.wait_taken_over()
            self._settle_later(run)
            return False
        self._sockets.wakeup.awake()
        if stop == "woken":
            self._sockets.wakeup.clear()
        if stop == "crowded":
            self._not_before = time.perf_counter() + CROWDED_S
        if stop in TROUBLES:
            self._give_up(run, stop)
        else:
            self._end(run)
        return True

    # -- one turn --------------------------------------------------------------------------------------

    def _begin(self) -> _Turn | None:
        """Start a turn if all its conditions hold, else return None."""
        usual = self.in_a_row < IN_A_ROW or not self._sockets.has_message
        if usual or time.perf_counter() < self._not_before:
            return None
        assert self._last is not None
        session, network = self._last
        service, sessions = self._service, self._service.sessions
        if service.life.draining or sessions.of(session.client) is not session or sessions.busy:
            return None
        begun = service.dispatcher.begin_directly(network)
        if begun is None:
            return None
        runner, lease = begun
        names = service.networks.names_of(network, session.network)
        named = network.info.content_hash if session.follows else ""
        key = (session, runner, runner.backend, lease.version, names, named)
        if self._loop is None or self._loop[0] != key:
            loop = DeviceLoop(
                self._sockets.hub,
                names=names,
                classes=PRIORITIES,
                instance=service.instance,
                network=named,
                slots=lease.slots,
                activate=lease.activate,
            )
            self._loop = key, loop
        return _Turn(session, network, runner, lease, self._loop[1])

    def _serve(self, run: _Turn) -> str:
        connection = run.session.client
        assert isinstance(connection, int)
        until_ms = now_ms() + RUN_MS
        self._guard.watch(run)
        try:
            while True:
                stop = run.loop.run(connection, until_ms, LATE_MS)
                if stop != "unprepared" or not _prepare(run):
                    return stop
        except Exception:  # preparing failed, or memory is short: the dispatcher reports the cause
            log.exception("%s: no batch without the interpreter", run.runner.device.name)
            return "late"
        finally:
            self._guard.rest()

    def _end(self, run: _Turn) -> None:
        run.lease.release()
        self._service.dispatcher.end_directly(run.network, run.runner)

    def _give_up(self, run: _Turn, trouble: str) -> None:
        """Pass the in-flight requests to the dispatcher, which finds out what is wrong with the device."""
        name = run.runner.device.name
        log.warning("%s: %s; its requests go to the dispatcher", name, TROUBLES[trouble])
        if trouble == "failed":
            self._service.metrics.device_failed(name)
        requests = run.loop.give_up()
        self._service.dispatcher.give_up_directly(run.runner)
        self._settle_later(run)
        self._retry(_arrived(requests))

    def _taken_over(self, run: _Turn, requests: Sequence[Arrived]) -> None:
        """Continue the I/O loop on another thread because a driver call does not return."""
        log.error("%s: its driver does not return from a batch", run.runner.device.name)
        self._service.dispatcher.give_up_directly(run.runner)
        self._service.call(lambda: self._retry(requests))
        self._replace()

    def _settle_later(self, run: _Turn) -> None:
        """Release the lease of a turn once the device has finished its batches. A failed device keeps it."""

        def work() -> None:
            if run.loop.settle():
                run.lease.release()
                self._service.dispatcher.settled_directly(run.network, run.runner)

        threading.Thread(target=work, name="settle", daemon=True).start()

    def _retry(self, requests: Sequence[Arrived]) -> None:
        """Pass unanswered requests to the normal handler, and pause the fast path for PAUSE_S."""
        self._loop = None
        self._not_before = time.perf_counter() + PAUSE_S
        for request in requests:
            self._handle(request, now_ms())

    # -- metrics ----------------------------------------------------------------------------------------

    def _count(self, run: _Turn, stop: str) -> None:
        """Count the answers of a turn. stop: why the turn ended; after a failure batches are still in
        flight."""
        answered = np.frombuffer(run.loop.answered(), ANSWERED)
        if not len(answered):
            return
        dispatcher, metrics = self._service.dispatcher, self._service.metrics
        ended, positions = answered["ended"], answered["positions"]
        own_ms, alone = times_of_their_own(answered["launched"], ended)
        alone &= stop not in TROUBLES and stop != "taken"
        ranks = np.unique(answered["rank"]).tolist()
        dispatcher.ran_directly(run.runner, positions.tolist(), ranks, own_ms.tolist(), alone.tolist())
        name = run.network.info.name
        computed = (ended - answered["launched"]) / 1000
        metrics.batches_ran(name, run.runner.device.name, positions, computed)
        for rank in ranks:
            chosen = answered[answered["rank"] == rank]
            metrics.all_answered(
                name,
                rank,
                chosen["positions"],
                (chosen["launched"] - chosen["arrived"]) / 1000,
                (chosen["ended"] - chosen["arrived"]) / 1000,
            )
        run.session.answered += len(answered)
        run.session.positions += int(positions.sum())
        run.session.rank = int(answered["rank"][-1])


class _Guard:
    """Watches the thread on the fast path from a thread of its own.

    taken_over: called with the in-flight requests if a driver call has not returned within LATE_MS.
    """

    def __init__(self, taken_over: Callable[[_Turn, Sequence[Arrived]], None]) -> None:
        self._taken_over = taken_over
        self._watched: _Turn | None = None
        self._watching = threading.Event()
        self._over = threading.Semaphore(0)
        self._thread: threading.Thread | None = None

    def watch(self, run: _Turn) -> None:
        """Start watching: the calling thread is about to enter the driver."""
        self._watched = run
        if self._thread is None:
            self._thread = threading.Thread(target=self._look, name="fast-path-guard", daemon=True)
            self._thread.start()
        if not self._watching.is_set():
            self._watching.set()

    def rest(self) -> None:
        """Stop watching: the calling thread has returned from the driver."""
        self._watched = None

    def wait_taken_over(self) -> None:
        """Wait until another thread has replaced the calling one, whose driver call returned too late."""
        self._over.acquire()

    def _look(self) -> None:
        while True:
            self._watching.wait()
            self._watching.clear()
            while (run := self._watched) is not None:
                time.sleep(LATE_MS / 1000)
                requests = run.loop.take_over(LATE_MS)
                if requests is not None:
                    self._watched = None
                    self._taken_over(run, _arrived(requests))
                    self._over.release()


def _prepare(run: _Turn) -> bool:
    """Make programs for the request that has none. Returns False if it is too large."""
    positions, moves = run.loop.unprepared
    for slot in range(run.lease.slots):
        program = run.lease.program(slot, positions, moves)
        if program is None:
            return False
        run.loop.prepare(slot, positions, program)
    return True


def _arrived(requests: Sequence[tuple[int, Sequence[object]]]) -> list[Arrived]:
    return [Arrived(number, frames, number) for number, frames in requests]


def times_of_their_own(
    launched: NDArray[np.float64], ended: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return each batch's own device time in milliseconds, and whether it had the device alone.

    Both arrays are in the order in which the batches ended, and include all of them. A device normally runs
    overlapping batches one after the other, so a batch's own time starts when the one before ended.
    """
    first = np.minimum.accumulate(launched[::-1])[::-1]  # earliest launch from this batch on
    began = first.copy()
    began[1:] = np.maximum(began[1:], ended[:-1])
    alone = np.ones(len(ended), bool)
    alone[1:] &= launched[1:] >= ended[:-1]
    alone[:-1] &= first[1:] >= ended[:-1]
    return ended - began, alone
