# SPDX-License-Identifier: GPL-3.0-or-later
"""What a client learns from a service that has too many connections."""

import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from protocol import EvaluatorClient
from protocol.common.keys.files import SERVICE_PAIR
from protocol.common.keys.notation import show_key
from protocol.common.keys.pairs import pair_at
from protocol.connections import unix, zeromq
from protocol.errors import EvaluatorLost
from tests.evaluator.zmtp import GREETING, command, exactly

WAIT_S = 30.0

TOO_MANY = command(b"\x05ERROR\x03300")


@contextmanager
def refusing(listener: socket.socket, greeting: bytes, takes: int = 0) -> Iterator[None]:
    """Refuse the first connection to a socket. takes: bytes of the client's that come before that."""

    def refuse() -> None:
        peer = listener.accept()[0]
        with peer:
            peer.sendall(greeting)
            exactly(peer, takes)
            peer.sendall(TOO_MANY)
            peer.shutdown(socket.SHUT_WR)
            while peer.recv(1 << 16):
                pass

    thread = threading.Thread(target=refuse)
    thread.start()
    try:
        yield
    finally:
        thread.join(WAIT_S)
        listener.close()


@pytest.mark.parametrize("takes", [0, 266], ids=["at once", "after its first command"])
@pytest.mark.parametrize("keys", [False, True])
def test_a_client_by_tcp_is_reported_that_there_are_too_many(
    keys: bool, takes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zeromq, "RETRY_S", 0.0)
    listener = socket.create_server(("127.0.0.1", 0))
    address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
    greeting = GREETING
    if keys:
        address += f"#{show_key(pair_at(tmp_path / SERVICE_PAIR).public)}"
        greeting = GREETING.replace(b"NULL\0", b"CURVE")
    elif takes:
        takes = 64 + 2
    with refusing(listener, greeting, takes), pytest.raises(EvaluatorLost, match="too many connections"):
        EvaluatorClient(address, keys=tmp_path / "client", timeout=WAIT_S)


@pytest.mark.skipif(sys.platform != "linux", reason="there is such a connection on Linux only")
def test_a_client_by_ipc_is_reported_that_there_are_too_many(tmp_path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "socket"))
    listener.listen()
    with refusing(listener, GREETING), pytest.raises(EvaluatorLost, match="too many connections"):
        EvaluatorClient(f"ipc://{tmp_path / 'socket'}", timeout=WAIT_S)


class Closed:
    """A stream whose service closed the connection before it had sent its greeting, as a test cannot time."""

    was_ready = False

    def send(self, _frames: Sequence[Any]) -> bool:
        return False

    def receive(self, _timeout_ms: int, _interrupt: int) -> None:
        raise ConnectionError("refused")

    def close(self) -> None:
        pass


@pytest.mark.skipif(sys.platform != "linux", reason="there is such a connection on Linux only")
def test_ipc_client_learns_that_it_cannot_send(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unix, "Stream", lambda *_, **__: Closed())
    with pytest.raises(EvaluatorLost, match="too many connections"):
        EvaluatorClient(f"ipc://{tmp_path / 'socket'}", timeout=WAIT_S)
