# SPDX-License-Identifier: GPL-3.0-or-later
"""Strangers that fill a service with silent connections, and clients that connect all the same."""

import contextlib
import os
import selectors
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import psutil
import pytest
import zmq

from evaluator.backends.common.probe import probe_batch
from evaluator.service.connections import hub_sockets
from protocol import EvaluatorClient
from protocol.common.keys.clients import AllowedClient, allow
from protocol.common.keys.files import CLIENT_PAIR, CLIENTS, SERVICE_PAIR
from protocol.common.keys.notation import show_key
from protocol.common.keys.pairs import pair_at
from protocol.errors import Overloaded
from tests.evaluator.service.process import free_port, serving, wait_for_line
from tests.evaluator.zmtp import GREETING, exactly, is_closed
from tests.paths import CACHE

pytestmark = [
    pytest.mark.skipif(not hub_sockets.AVAILABLE, reason="this system has no hub"),
    pytest.mark.integration,
]

LIMIT = 40
"""The service's max_connections."""

WAIT_S = 60.0

MOST_BYTES = 64 * 1000 * 1000
"""Bytes by which the process may grow for strangers; 30 times most of a frame would be 87 MB."""

CURVE_GREETING = GREETING.replace(b"NULL\0", b"CURVE")


@dataclass
class Guarded:
    """A service that demands keys, also on loopback. before: connections closed before a test, by reason."""

    port: int
    ipc: str
    address: str
    keys: str
    process: psutil.Process
    before: dict[str, int] = field(default_factory=dict)

    def closed(self, reason: str) -> int:
        """Connections closed for a reason during the test."""
        with EvaluatorClient(self.ipc, timeout=WAIT_S) as operator:
            count: int = operator.status().metrics["closed_connections"][reason]
        return count - self.before[reason]

    def client(self) -> EvaluatorClient:
        """A client with a key that is let in."""
        return EvaluatorClient(self.address, keys=self.keys, timeout=WAIT_S)


@pytest.fixture(scope="module")
def shared_guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    tmp_path = tmp_path_factory.mktemp("guarded")
    service, own = tmp_path / "service", tmp_path / "client"
    public = pair_at(service / SERVICE_PAIR).public
    friend = pair_at(own / CLIENT_PAIR).public
    allow(service / CLIENTS, AllowedClient("friend", "play", friend))
    port, ipc = free_port(), f"ipc://{tmp_path / 'socket'}"
    address = f"tcp://127.0.0.1:{port}"
    environment = {**os.environ, CACHE: str(tmp_path)}
    flags = ["--backend", "random", "--keys", str(service), "--keys-on-loopback"]
    flags += ["--address", address, "--address", ipc, "--max-connections", str(LIMIT)]
    with serving(environment, *flags) as process:
        wait_for_line(process, "ready")
        yield Guarded(port, ipc, f"{address}#{show_key(public)}", str(own), psutil.Process(process.pid))


@pytest.fixture
def guarded(shared_guarded: Guarded) -> Guarded:
    """The service with nothing left of earlier tests."""
    with EvaluatorClient(shared_guarded.ipc, timeout=WAIT_S) as operator:
        while operator.status().metrics["connections"] > 1:
            pass
        shared_guarded.before = operator.status().metrics["closed_connections"]
    return shared_guarded


def hello(guarded: Guarded) -> bytes:
    """What a client of ZeroMQ sends until it waits for the service: its greeting and CURVE's HELLO."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        dealer.curve_serverkey = bytes.fromhex(guarded.address.rpartition("#")[2])
        dealer.curve_publickey, dealer.curve_secretkey = zmq.curve_keypair()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            dealer.connect(f"tcp://127.0.0.1:{listener.getsockname()[1]}")
            peer = listener.accept()[0]
            with peer:
                peer.sendall(CURVE_GREETING)
                return exactly(peer, 64 + 2 + 200)


class Strangers:
    """Keep more silent connections open than there may be, and reopen those that are closed."""

    def __init__(self, port: int, addresses: int, said: bytes) -> None:
        self.filled = threading.Event()
        self._port, self._said = port, said
        self._addresses = [f"127.0.0.{2 + number}" for number in range(addresses)]
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Strangers":
        self._thread.start()
        assert self.filled.wait(WAIT_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join(WAIT_S)

    def _run(self) -> None:
        opened = 0
        with selectors.DefaultSelector() as selector:
            while not self._ends.is_set():
                while len(selector.get_map()) < 2 * LIMIT:
                    source = (self._addresses[opened % len(self._addresses)], 0)
                    with contextlib.suppress(OSError):
                        made = socket.create_connection(("127.0.0.1", self._port), 5.0, source)
                        made.sendall(self._said)
                        made.setblocking(False)
                        selector.register(made, selectors.EVENT_READ)
                    opened += 1
                if opened > 4 * LIMIT:
                    self.filled.set()
                for key, _ in selector.select(0.01):
                    one = key.fileobj
                    assert isinstance(one, socket.socket)
                    with contextlib.suppress(BlockingIOError, ConnectionError):
                        if one.recv(1 << 16):
                            continue
                    selector.unregister(one)
                    one.close()
            for key in list(selector.get_map().values()):
                assert isinstance(key.fileobj, socket.socket)
                key.fileobj.close()


def test_unfinished_large_frames_of_strangers_keep_little_memory(guarded: Guarded) -> None:
    before = peak = guarded.process.memory_info().rss
    part = CURVE_GREETING + b"\x06" + (3_000_000).to_bytes(8, "big") + bytes(2_900_000)
    with contextlib.ExitStack() as stack:
        for number in range(30):
            source = (f"127.0.0.{2 + number}", 0)
            stranger = socket.create_connection(("127.0.0.1", guarded.port), WAIT_S, source)
            stack.enter_context(stranger)
            with contextlib.suppress(OSError):
                stranger.sendall(part)
            peak = max(peak, guarded.process.memory_info().rss)
    assert peak - before < MOST_BYTES


@pytest.mark.parametrize("addresses", [1, 200])
@pytest.mark.parametrize("said", ["nothing", "greeting", "hello"])
def test_client_with_a_key_connects_beside_strangers(guarded: Guarded, said: str, addresses: int) -> None:
    text = {"nothing": b"", "greeting": CURVE_GREETING, "hello": hello(guarded)}[said]
    with Strangers(guarded.port, addresses, text):
        for _ in range(LIMIT):
            with guarded.client() as client:
                assert client.ping() >= 0
        while not guarded.closed("silent" if addresses == 1 else "late"):
            pass


def test_a_stranger_that_does_not_finish_its_handshake_is_closed(guarded: Guarded) -> None:
    with socket.create_connection(("127.0.0.1", guarded.port), WAIT_S) as silent:
        silent.sendall(CURVE_GREETING)
        assert is_closed(silent)
    assert guarded.closed("late") == 1


@pytest.mark.parametrize("head", [b"\x04", b"\x06"], ids=["short frames", "a large frame"])
def test_a_stranger_may_send_a_handshake_and_nothing_more(guarded: Guarded, head: bytes) -> None:
    size = bytes([255]) if head == b"\x04" else (3_000_000).to_bytes(8, "big")
    with socket.create_connection(("127.0.0.1", guarded.port), WAIT_S) as stranger:
        with contextlib.suppress(OSError):
            stranger.sendall(CURVE_GREETING + head + size + bytes(2_000_000))
        assert is_closed(stranger)
    with guarded.client() as client:
        assert client.ping() >= 0


def test_a_client_with_a_key_may_send_large_requests_at_once(guarded: Guarded) -> None:
    with guarded.client() as client:
        for count in (1, 1000, 4096):
            assert len(client.evaluate(probe_batch(count))) == count
    assert guarded.closed("frame") == 0


def test_excess_client_gets_the_reason_and_operators_are_served(guarded: Guarded) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(LIMIT):
            stack.enter_context(guarded.client())
        with pytest.raises(Overloaded, match="too many connections"):
            guarded.client()
        assert guarded.closed("connections") == 1
