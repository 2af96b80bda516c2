# SPDX-License-Identifier: GPL-3.0-or-later
"""What the service's tests share: a service in a thread on a real socket, and backends that do as told."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import zmq

from evaluator.backends.common.base import Backend, BackendError
from evaluator.backends.common.sensors import Sensors
from evaluator.devices.opening.loading import Loader
from evaluator.service.connections.access import Access
from evaluator.service.connections.endpoints import AddressError
from evaluator.service.networks import NetworkToLoad
from evaluator.service.service import EvaluatorService
from evaluator.settings import DeviceSettings
from protocol import EvaluatorClient
from protocol.batch import EvaluationBatch, PositionBatch
from protocol.client import Completed
from tests.backends.batches import varied_batch

WAIT_S = 60.0
"""Longest wait for anything; a test that needs it has failed."""


@contextmanager
def foreign_client(address: str) -> Iterator[zmq.Socket[bytes]]:
    """A connected socket of a client that is no EvaluatorClient."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        dealer.rcvtimeo = int(1000 * WAIT_S)
        dealer.connect(address)
        yield dealer


def expected(batch: PositionBatch) -> EvaluationBatch:
    """What EchoBackend answers: numbers that tell every position and every move apart."""
    rule50 = batch.positions["rule50"].astype(np.float32)
    wdl = np.stack([rule50, rule50 + 0.25, rule50 + 0.5], axis=1)
    return EvaluationBatch(batch.moves.astype(np.float32), wdl, rule50 * 2)


def numbered_batch(count: int, first: int = 0, seed: int = 1) -> PositionBatch:
    """A batch whose positions have rule50 = first, first + 1, …"""
    batch = varied_batch(count, seed)
    batch.positions["rule50"] = np.arange(first, first + count)
    return batch


def same(actual: EvaluationBatch, wanted: EvaluationBatch) -> bool:
    """Whether two evaluations are bit for bit the same."""
    return (
        np.array_equal(actual.logits, wanted.logits)
        and np.array_equal(actual.wdl, wanted.wdl)
        and np.array_equal(actual.moves_left, wanted.moves_left)
    )


def answers(client: EvaluatorClient, count: int, first: int = 0) -> bool:
    """Whether an evaluation of numbered positions is what an EchoBackend answers."""
    batch = numbered_batch(count, first)
    return same(client.evaluate(batch), expected(batch))


class EchoBackend(Backend):
    """Answers from the positions themselves and remembers the sizes of its batches.

    While `gate` is clear, `evaluate` waits for it; `entered` counts the calls that began. `answer` replaces
    what it does. sensed: what its sensors say.
    """

    name = "echo"
    device = "test"

    def __init__(self, max_batch: int = 1024, sensed: Sensors | None = None) -> None:
        self.max_batch = max_batch
        self.sizes: list[int] = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)
        self.was_closed = threading.Event()
        self.answer: Callable[[PositionBatch], EvaluationBatch] = expected
        self.sensed = sensed

    def evaluate(self, batch: PositionBatch) -> EvaluationBatch:
        self.sizes.append(len(batch))
        self.entered.release()
        if not self.gate.wait(WAIT_S):
            raise BackendError("the test forgot to open the gate")
        return self.answer(batch)

    def sensors(self) -> Sensors | None:
        return self.sensed

    def close(self) -> None:
        self.was_closed.set()

    @property
    def closed(self) -> bool:
        return self.was_closed.is_set()

    def hold(self) -> None:
        """Keep batches inside from now on, forgetting those before."""
        self.gate.clear()
        self.sizes.clear()
        while self.entered.acquire(blocking=False):
            pass

    def wait_entered(self) -> None:
        """Until one more call has begun."""
        assert self.entered.acquire(timeout=WAIT_S), "no batch reached the device"


def received(client: EvaluatorClient) -> Completed:
    """Return the next answer. Notices of changed networks and devices come between."""
    until = time.perf_counter() + WAIT_S
    while time.perf_counter() < until:
        completed = client.receive(WAIT_S * 1000)
        if completed is not None:
            return completed
    raise TimeoutError("no answer came")


def made_after(gate: threading.Event) -> Callable[[str], EchoBackend]:
    """For `running`: what makes devices that open when the gate does, as if networks took long to load."""

    def make(name: str) -> EchoBackend:
        assert gate.wait(WAIT_S), "the test forgot to open the gate"
        return EchoBackend()

    return make


@dataclass
class Harness:
    """A running service. backends: in order of opening. others: its further addresses."""

    address: str
    service: EvaluatorService
    loader: Loader
    backends: list[EchoBackend]
    thread: threading.Thread
    others: list[str] = field(default_factory=list)
    clients: list[EvaluatorClient] = field(default_factory=list)

    @property
    def backend(self) -> EchoBackend:
        return self.backends[0]

    def occupy(self, client: EvaluatorClient, count: int) -> None:
        """Let the backend hold a client's batch until its gate is opened."""
        self.backend.hold()
        client.submit(numbered_batch(count))
        self.backend.wait_entered()

    def client(self, **options: Any) -> EvaluatorClient:
        """A new client, closed with the harness."""
        client = EvaluatorClient(self.address, timeout=WAIT_S, **options)
        self.clients.append(client)
        return client


def devices(*backends: str) -> DeviceSettings:
    """Settings of devices that are measured quickly and not cached."""
    return DeviceSettings(backend=backends, calibration_s=0.01, latency_cache=False, tuning="before")


@contextmanager
def running(
    folder: Path,
    *,
    backends: tuple[str, ...] = ("echo",),
    make: Callable[[str], EchoBackend] = lambda name: EchoBackend(),
    networks: int = 1,
    address: str = "tcp://127.0.0.1:0",
    further: Sequence[str] = (),
    access: Access | None = None,
    before_ready: Callable[[str], None] = lambda address: None,
    **options: Any,
) -> Iterator[Harness]:
    """A service on an address of its own whose devices are EchoBackends. access: who may do what, everybody
    everything if none is given. further: addresses besides. before_ready: called with the address while the
    networks are loaded. private: as an engine starts one for itself, at an ipc address."""
    opened: list[EchoBackend] = []

    def open_backend(name: str, network: Any, settings: DeviceSettings, **more: Any) -> Backend:
        if name == "broken":
            raise BackendError("this backend never opens")
        backend = make(name)
        opened.append(backend)
        return backend

    def even_curve(backend: Backend, sizes: Sequence[int], *_: Any, **__: Any) -> dict[int, float]:
        return {size: 1 + size / 1000 for size in sizes}

    loader = Loader(devices(*backends), open_backend=open_backend)
    initial = [NetworkToLoad(None)] * networks
    ready = threading.Event()
    service = EvaluatorService(
        loader,
        initial,
        access=access or Access(plain_admin=True),
        on_ready=lambda infos: ready.set(),
        **options,
    )
    if options.get("private"):
        address = f"ipc://{folder / 'evaluator'}"
    try:
        address, *others = [service.bind(each) for each in (address, *further)]
    except AddressError:
        service.close()
        raise
    thread = threading.Thread(target=service.run)
    # Measured on a busy machine, the few microseconds of an EchoBackend make curves of any shape.
    curve = patch("evaluator.devices.opening.calibration.time_batches", even_curve)
    curve.start()
    thread.start()
    before_ready(address)
    assert ready.wait(WAIT_S), "the service did not get ready"
    # Devices open concurrently; tests count them in the order of `backends`.
    opened.sort(key=[runner.backend for served in loader._served for runner in served.runners].index)
    harness = Harness(address, service, loader, opened, thread, others)
    try:
        yield harness
    finally:
        curve.stop()
        for client in harness.clients:
            client.close()
        for backend in opened:
            backend.gate.set()
        service.stop()
        thread.join(WAIT_S)
    assert not thread.is_alive(), "the service did not stop"
    # A call that was given up closes its backend when it returns.
    assert all(backend.was_closed.wait(WAIT_S) for backend in opened), "a backend was left open"
