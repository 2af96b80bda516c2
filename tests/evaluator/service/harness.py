# SPDX-License-Identifier: GPL-3.0-or-later
"""What the service's tests share: a service in a thread on a real socket, on backends that do as told."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import zmq

from evaluator.backends.common.base import Backend, BackendError
from evaluator.devices.opening.loading import Loader
from evaluator.service.connections.access import Access
from evaluator.service.connections.endpoints import AddressError
from evaluator.service.networks import NetworkToLoad
from evaluator.service.service import EvaluatorService
from evaluator.settings import DeviceSettings
from protocol import EvaluatorClient
from protocol.client import Completed
from tests.evaluator.service.echo import WAIT_S, EchoBackend, expected, numbered_batch, same


@contextmanager
def foreign_client(address: str) -> Iterator[zmq.Socket[bytes]]:
    """A connected socket of a client that is no EvaluatorClient."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        dealer.rcvtimeo = int(1000 * WAIT_S)
        dealer.connect(address)
        yield dealer


def answers(client: EvaluatorClient, count: int, first: int = 0) -> bool:
    """Whether an evaluation of numbered positions is what an EchoBackend answers."""
    batch = numbered_batch(count, first)
    return same(client.evaluate(batch), expected(batch))


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


@contextmanager
def serving(folder: Path, **options: Any) -> Iterator[tuple[Harness, EvaluatorClient]]:
    """`running`, with a client of it."""
    with running(folder, **options) as harness:
        yield harness, harness.client()
