# SPDX-License-Identifier: GPL-3.0-or-later
"""Clients that do their worst to a service in a process of its own: its memory stays within what
docs/how-to/service.md says, and others are answered meanwhile."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import msgpack
import numpy as np
import psutil
import pytest

from evaluator.backends.common.probe import probe_batch
from evaluator.service.connections import hub_sockets
from protocol import EvaluatorClient
from protocol.batch import POSITION_DTYPE, PositionBatch
from protocol.errors import EvaluatorLost
from protocol.wire.codec import encode_evaluate
from tests.evaluator.service.plugin import Plugin
from tests.evaluator.service.process import free_port, serving, wait_for_line
from tests.evaluator.zmtp import GREETING, connect, frame, is_closed, message

WAIT_S = 60.0

MOST_A_CLIENT = 64 * 1000 * 1000
"""Bytes by which the process may grow for one client."""

MOST_A_CONNECTION = 64 * 1000
"""For one that is only connected."""

pytestmark = [
    pytest.mark.skipif(not hub_sockets.AVAILABLE, reason="this system has no hub"),
    pytest.mark.integration,
]


@dataclass
class Attacked:
    """A service with a client that asks all the time for one position after the other.

    base: bytes of the process before anything was done to it.
    """

    port: int
    process: psutil.Process
    base: int
    asking: "Asking"

    @property
    def growth(self) -> int:
        """Bytes."""
        return int(self.process.memory_info().rss) - self.base

    def client(self) -> EvaluatorClient:
        return EvaluatorClient(f"tcp://127.0.0.1:{self.port}", timeout=WAIT_S)

    def closed(self) -> dict[str, int]:
        """Connections closed, by reason."""
        with self.client() as client:
            found: dict[str, int] = client.status().metrics["closed_connections"]
        return {reason: count for reason, count in found.items() if count}


class Asking:
    """A client in a thread, until the context ends. peak: the largest size of the process that it saw."""

    def __init__(self, port: int, process: psutil.Process) -> None:
        self.peak = 0
        self._answers = threading.Semaphore(0)
        self._ends = threading.Event()
        self._port, self._process = port, process
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self) -> "Asking":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()

    def hears(self, answers: int) -> None:
        """Wait until it has got so many more."""
        for _ in range(answers):
            assert self._answers.acquire(timeout=WAIT_S), "a client that does no harm is not answered"

    def _ask(self) -> None:
        batch = probe_batch(1)
        with EvaluatorClient(f"tcp://127.0.0.1:{self._port}", timeout=WAIT_S) as client:
            while not self._ends.is_set():
                assert len(client.evaluate(batch)) == 1
                self.peak = max(self.peak, self._process.memory_info().rss)
                self._answers.release()


@pytest.fixture
def attacked(
    environment: dict[str, str], plugin: Plugin, request: pytest.FixtureRequest
) -> Iterator[Attacked]:
    """A service, with flags if the test gives it some."""
    port = free_port()
    flags = ("--backend", "plugin", "--no-latency-cache", "--plain-admin", *getattr(request, "param", []))
    with serving(environment, *flags, "--address", f"tcp://127.0.0.1:{port}") as process:
        wait_for_line(process, "ready")
        seen = psutil.Process(process.pid)
        with Asking(port, seen) as asking:
            asking.hears(50)
            yield Attacked(port, seen, seen.memory_info().rss, asking)
            asking.hears(20)
        assert process.poll() is None


def test_a_client_that_never_reads_is_bounded_and_disconnected(attacked: Attacked) -> None:
    count, moves = 4096, 256
    batch = PositionBatch(
        np.zeros(count, POSITION_DTYPE),
        np.arange(0, count * moves + 1, moves, dtype=np.uint32),
        np.tile(np.arange(moves, dtype=np.uint16), count),
    )
    frames = [np.asarray(each).tobytes() for each in encode_evaluate(1, batch, "selfplay", None, "")[1:]]
    with connect(attacked.port) as hostile, contextlib.suppress(OSError):
        for number in range(100):  # 420 MB of answers
            header = {"type": "evaluate", "id": number + 1, "count": count, "class": "selfplay"}
            hostile.sendall(message([msgpack.packb(header), *frames]))
        pytest.fail("it may go on")
    attacked.asking.hears(20)
    assert attacked.asking.peak - attacked.base < MOST_A_CLIENT
    with attacked.client() as client:
        while client.status().metrics["buffered_bytes"]:
            pass


@pytest.mark.parametrize("attacked", [["--max-request", "64", "--max-client-bytes", "1"]], indirect=True)
def test_client_is_disconnected_when_it_reads_too_little(attacked: Attacked) -> None:
    """Answers that need no device are bounded, too."""
    status = message([msgpack.packb({"type": "status", "id": 1})]) * 1000
    with connect(attacked.port) as hostile, pytest.raises(ConnectionError):
        for _ in range(1000):
            hostile.sendall(status)
    # On a busy machine its heartbeats are missed first: it is not read from while it has much to read.
    assert attacked.closed() in ({"unread": 1}, {})
    assert attacked.asking.peak - attacked.base < MOST_A_CLIENT


def test_nobody_notices_when_a_client_leaves_many_messages(attacked: Attacked) -> None:
    """libzmq 4.3.5 would end the process: when a connection breaks whose messages wait for the service, and
    its next heartbeat is due before the service has taken them."""
    status = message([msgpack.packb({"type": "status", "id": 1})]) * 3000
    for _ in range(5):
        hostile = connect(attacked.port)
        hostile.sendall(status)
        hostile.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        hostile.close()  # with a reset
        attacked.asking.hears(100)


def test_a_client_is_disconnected_when_its_message_never_ends(attacked: Attacked) -> None:
    part = frame(bytes(1_000_000), more=True)
    with connect(attacked.port) as hostile:
        with pytest.raises(OSError):  # noqa: PT011 - reset, or a broken pipe
            for _ in range(1000):
                hostile.sendall(part)
        attacked.asking.hears(20)
    assert attacked.closed() == {"message": 1}
    assert attacked.asking.peak - attacked.base < MOST_A_CLIENT


def test_client_is_disconnected_when_it_sends_empty_frames(attacked: Attacked) -> None:
    with connect(attacked.port) as hostile:
        with contextlib.suppress(OSError):
            hostile.sendall(frame(b"", more=True) * 1_000_000 + frame(b""))
        assert is_closed(hostile)
    assert attacked.closed() == {"parts": 1}
    assert attacked.asking.peak - attacked.base < MOST_A_CLIENT


def test_many_unfinished_messages_are_bounded(attacked: Attacked) -> None:
    """Those of one client after the other, which never come to their ends."""
    part = frame(bytes(1_000_000), more=True)
    hostile = [connect(attacked.port) for _ in range(20)]
    for each in hostile:
        each.sendall(part * 4)
    attacked.asking.hears(20)
    for each in hostile:
        each.close()
    with contextlib.suppress(EvaluatorLost), attacked.client() as client:
        while client.status().metrics["connections"] > 2 or client.status().metrics["buffered_bytes"]:
            pass
    assert attacked.asking.peak - attacked.base < len(hostile) * MOST_A_CLIENT


def test_three_thousand_connections_are_kept_and_cost_little(attacked: Attacked) -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = 3000
    if hard != resource.RLIM_INFINITY and hard < 4 * count:
        pytest.skip("the system allows too few open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (4 * count, hard))
    crowd: list[socket.socket] = []
    try:
        for _ in range(count):
            # No address may have more than a quarter of them.
            source = (f"127.0.0.{2 + len(crowd) % 8}", 0)
            crowd.append(socket.create_connection(("127.0.0.1", attacked.port), WAIT_S, source))
            crowd[-1].sendall(GREETING[:10])
        with attacked.client() as client:
            while client.status().metrics["connections"] < count:
                pass
            attacked.asking.hears(20)
            assert attacked.asking.peak - attacked.base < count * MOST_A_CONNECTION
    finally:
        for each in crowd:
            each.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with attacked.client() as client:
        while client.status().metrics["connections"] > 2:
            pass
