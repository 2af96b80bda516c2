# SPDX-License-Identifier: GPL-3.0-or-later
"""The gate between clients and a ROUTER: what passes, who is turned away, and what is counted."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import zmq

if sys.platform != "linux":
    pytest.skip("there is a gate on Linux only", allow_module_level=True)

from evaluator._core import ByteAccount, Gate
from tests.evaluator.zmtp import GREETING, READY, command, connect, frame, is_closed, message

WAIT_S = 15.0

LIMITS = {
    "frame": 100_000,
    "message": 200_000,
    "parts": 8,
    "arriving": 250_000,
    "kept": 1_000_000,
    "promised": 900_000,
    "buffered": 10_000_000,
    "connections": 100,
    "per_source": 100,
    "greeting_ms": 60_000,
}


@dataclass
class Gated:
    """A gate before a ROUTER."""

    gate: Gate
    router: zmq.Socket[bytes]
    context: zmq.Context[Any]
    port: int

    @property
    def address(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def receive(self) -> tuple[bytes, list[bytes], ByteAccount]:
        """A client's identity, its next message, and its link; told to have been taken."""
        assert self.router.poll(int(WAIT_S * 1000)), "no message came"
        frames = self.router.recv_multipart(copy=False)
        link = self.gate.link_of(int(frames[-1].get(zmq.SRCFD)))
        assert link is not None
        link.took(frames, 1)
        return frames[0].bytes, [each.bytes for each in frames[1:]], link

    def dealer(self, most_waiting: int = 1000) -> zmq.Socket[bytes]:
        """A client, connected. most_waiting: messages that it takes before they are received."""
        made: zmq.Socket[bytes] = self.context.socket(zmq.DEALER)
        made.linger = 0
        made.rcvhwm = most_waiting
        made.connect(self.address)
        return made


@contextlib.contextmanager
def gated(folder: Path, **changed: int) -> Iterator[Gated]:
    """A gate with other limits than LIMITS."""
    gate = Gate(**{**LIMITS, **changed})
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    port = listener.getsockname()[1]
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.linger = 0
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        router.bind(f"ipc://{folder / 'router'}")
        gate.listen(listener.detach(), str(folder / "router"), local=False, keys=False)
        try:
            yield Gated(gate, router, context, port)
        finally:
            gate.close(0)
            context.destroy(linger=0)


def until(condition: Callable[[], bool]) -> None:
    """Wait for what another thread is about to do."""
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.001)


def test_messages_pass_both_ways_bit_for_bit(tmp_path: Path) -> None:
    with gated(tmp_path) as it:
        client = it.dealer()
        sent = [os.urandom(size) for size in (0, 1, 255, 256, 65_536, 99_999)]
        client.send_multipart(sent)
        identity, came, link = it.receive()
        assert came == sent
        it.router.send_multipart([identity, *sent])
        assert client.recv_multipart() == sent
        assert link.address == "127.0.0.1"
        assert (link.arriving, link.unread, len(it.gate)) == (0, 0, 1)


def test_curve_passes_from_end_to_end(tmp_path: Path) -> None:
    """The gate needs no key: it sees sizes only, and bounds what the service has not taken."""
    public, secret = zmq.curve_keypair()
    own_public, own_secret = zmq.curve_keypair()
    with gated(tmp_path) as it:
        curve = it.context.socket(zmq.ROUTER)
        curve.curve_server, curve.curve_secretkey = True, secret
        curve.bind(f"ipc://{tmp_path / 'curve'}")
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        it.gate.listen(listener.detach(), str(tmp_path / "curve"), local=False, keys=True)
        client = it.context.socket(zmq.DEALER)
        client.curve_serverkey, client.curve_publickey, client.curve_secretkey = (
            public,
            own_public,
            own_secret,
        )
        client.connect(f"tcp://127.0.0.1:{port}")
        it.router = curve
        for _ in range(20):  # more than may be on its way at a time
            sent = [b"", b"x" * 31, os.urandom(32), os.urandom(60_000)]
            client.send_multipart(sent)
            identity, came, link = it.receive()
            assert came == sent
            assert link.arriving == 0
            curve.send_multipart([identity, *sent])
            assert client.recv_multipart() == sent


def test_a_client_over_ipc_is_named_by_its_user_and_process(tmp_path: Path) -> None:
    with gated(tmp_path) as it:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(tmp_path / "public"))
        listener.listen()
        it.gate.listen(listener.detach(), str(tmp_path / "router"), local=True, keys=False)
        client = it.context.socket(zmq.DEALER)
        client.connect(f"ipc://{tmp_path / 'public'}")
        client.send(b"hello")
        assert it.receive()[2].address == f"localhost:{os.getuid()}:{os.getgid()}:{os.getpid()}"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "foreign"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "foreign"),
        (b"\x01\x00", "foreign"),  # ZMTP 1
        (GREETING[:10] + b"\x01\x00", "foreign"),  # ZMTP 2
        (GREETING.replace(b"NULL\0", b"PLAIN"), "foreign"),
        (GREETING + b"\x08\x00", "malformed"),
        (GREETING + b"\x05\x00", "malformed"),  # a command with more to come
        (GREETING + b"\x06" + (8193).to_bytes(8, "big"), "frame"),
        (GREETING + command(READY) + b"\x06" + (1025).to_bytes(8, "big"), "frame"),
        (GREETING + command(READY) + b"\x02" + (100_001).to_bytes(8, "big"), "frame"),
        (GREETING + command(READY) + b"\x02" + b"\xff" * 8, "frame"),
        (GREETING + command(READY) + frame(bytes(99_999), more=True) * 3, "message"),
        (GREETING + command(READY) + b"\x01\x00" * 9, "parts"),
        (GREETING + command(READY) + b"\x01\x00" * 1_000_000, "parts"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_who_sends_what_nobody_may_is_cut_off_and_nobody_else(
    tmp_path: Path, said: bytes, reason: str
) -> None:
    with gated(tmp_path) as it:
        other = it.dealer()
        other.send(b"first")
        identity = it.receive()[0]
        hostile = socket.create_connection(("127.0.0.1", it.port), timeout=WAIT_S)
        with contextlib.suppress(OSError):  # It may be cut off in the middle.
            hostile.sendall(said)
        assert is_closed(hostile)
        until(lambda: it.gate.counts()[reason] == 1)
        assert it.gate.news() == [("127.0.0.1", reason)]
        other.send(b"second")
        assert it.receive()[:2] == (identity, [b"second"])
        assert it.gate.buffered == 0


def test_a_message_of_as_many_frames_and_bytes_as_may_be_passes(tmp_path: Path) -> None:
    with gated(tmp_path) as it, connect(it.port) as client:
        for frames in ([b""] * 8, [bytes(100_000)] * 2):
            client.sendall(message(frames))
            assert it.receive()[1] == frames


def test_who_says_nothing_is_cut_off_after_a_while(tmp_path: Path) -> None:
    with gated(tmp_path, greeting_ms=50) as it:
        silent = socket.create_connection(("127.0.0.1", it.port), timeout=WAIT_S)
        slow = socket.create_connection(("127.0.0.1", it.port), timeout=WAIT_S)
        slow.sendall(GREETING[:9])
        assert is_closed(silent) and is_closed(slow)
        until(lambda: it.gate.counts()["late"] == 2)


def test_what_the_service_does_not_take_stays_outside(tmp_path: Path) -> None:
    """The client can send no more than `arriving` and what fits into the system's sockets, until the service
    takes a message."""
    with gated(tmp_path) as it, connect(it.port) as client:
        client.setblocking(False)
        data = memoryview(message([bytes(50_000)]) * 1000)
        sent = 0
        quiet = time.monotonic()
        while time.monotonic() < quiet + 0.5 or it.gate.buffered < 250_000:
            with contextlib.suppress(BlockingIOError):
                sent += client.send(data[sent:])
                quiet = time.monotonic()
        assert sent < len(data)
        # One frame more at most, as what has begun counts whole, and the one read before it was looked at.
        assert it.gate.buffered <= 500_000
        for _ in range(sent // 50_009):
            with contextlib.suppress(BlockingIOError):
                sent += client.send(data[sent:])
            it.receive()
        until(lambda: it.gate.buffered < 500_000)


def test_answers_that_are_not_read_are_counted_and_then_the_client_is_cut_off(tmp_path: Path) -> None:
    with gated(tmp_path) as it, connect(it.port) as client:
        client.sendall(message([b"hello"]))
        identity, _, link = it.receive()
        answer = bytes(100_000)

        def refused() -> bool:
            try:
                it.router.send_multipart([identity, answer])
            except zmq.ZMQError:
                return True
            until(lambda: it.gate.counts()["unread"] > 0 or link.unread <= 1_000_000)
            return False

        until(refused)  # The router notices the end of the connection after the gate.
        until(lambda: it.gate.counts()["unread"] == 1)
        assert (link.unread, it.gate.buffered) == (0, 0)


def test_answers_that_are_read_late_come_whole(tmp_path: Path) -> None:
    with gated(tmp_path, kept=100_000_000, buffered=100_000_000) as it:
        client = it.dealer(most_waiting=1)
        client.send(b"hello")
        identity, _, link = it.receive()
        answers = [os.urandom(1_000_000) for _ in range(30)]
        for answer in answers:
            it.router.send_multipart([identity, answer])
        until(lambda: link.unread > 0)
        assert [client.recv() for _ in answers] == answers
        until(lambda: link.unread == 0)
        assert it.gate.buffered == 0


def test_a_request_is_charged_until_its_answer_has_been_read(tmp_path: Path) -> None:
    with gated(tmp_path, kept=2_000_000, promised=20_000_000) as it:
        client = it.dealer()
        client.send(b"hello")
        identity, _, link = it.receive()
        assert link.charge(19_000_000)
        assert not link.charge(1_000_001)
        assert link.charge(1_000_000)
        link.answer(1_000_000, 0)
        assert link.held == 19_000_000
        link.answer(19_000_000, 500)  # an answer of 500 bytes is on its way
        assert not link.charge(20_000_000)
        it.router.send_multipart([identity, bytes(500)])
        assert client.recv() == bytes(500)
        until(lambda: link.charge(20_000_000))


def test_an_answer_that_could_not_be_sent_is_charged_no_more(tmp_path: Path) -> None:
    with gated(tmp_path) as it, connect(it.port) as client:
        client.sendall(message([b"hello"]))
        link = it.receive()[2]
        link.answer(0, 500)
        assert not link.charge(900_000)
        link.answer(0, -500)
        assert link.charge(900_000)


def test_when_all_together_keep_too_much_the_one_with_the_most_goes(tmp_path: Path) -> None:
    with gated(tmp_path, buffered=150_000) as it:
        small, large = connect(it.port), connect(it.port)
        small.sendall(message([b"hello"]))
        link = it.receive()[2]
        small.sendall(frame(bytes(60_000), more=True))
        until(lambda: link.arriving > 60_000)
        large.sendall(frame(bytes(95_000), more=True))
        assert is_closed(large)
        assert it.gate.counts()["crowded"] == 1
        small.sendall(frame(b"the end"))
        assert it.receive()[1] == [bytes(60_000), b"the end"]


def test_the_service_can_have_a_connection_cut(tmp_path: Path) -> None:
    with gated(tmp_path) as it, connect(it.port) as client:
        client.sendall(message([b"hello"]))
        link = it.receive()[2]
        link.cut()
        assert is_closed(client)
        assert it.gate.counts()["asked"] == 1
        link.cut()  # It has gone: nothing happens.
        link.took([b"x"])
        link.answer(0, 5)


def test_who_goes_while_it_is_not_read_is_noticed(tmp_path: Path) -> None:
    with gated(tmp_path) as it:
        client = connect(it.port)
        client.sendall(message([bytes(50_000)]) * 6)
        until(lambda: it.gate.buffered >= 250_000)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()  # with a reset
        until(lambda: len(it.gate) == 0)
        assert it.gate.buffered == 0


def test_the_last_answers_are_delivered_when_the_service_ends(tmp_path: Path) -> None:
    with gated(tmp_path, kept=100_000_000, buffered=100_000_000) as it:
        client = connect(it.port)
        client.sendall(message([b"hello"]))
        identity, _, link = it.receive()
        it.router.linger = 60_000
        it.router.send_multipart([identity, bytes(20_000_000)])
        it.gate.stop_listening()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", it.port), timeout=WAIT_S)
        it.router.close()
        until(lambda: link.unread > 1_000_000)
        came = 0
        while part := client.recv(1 << 20):
            came += len(part)
        assert came > 20_000_000
        it.gate.close(int(WAIT_S * 1000))  # Nothing is left to wait for.
        assert len(it.gate) == 0


def test_a_gate_closes_with_clients_that_do_not_read(tmp_path: Path) -> None:
    with gated(tmp_path, kept=100_000_000, buffered=100_000_000) as it:
        client = connect(it.port)
        client.sendall(message([b"hello"]))
        identity, _, link = it.receive()
        it.router.send_multipart([identity, bytes(20_000_000)])
        until(lambda: link.unread > 1_000_000)
        it.gate.close(10)
        assert (len(it.gate), it.gate.buffered) == (0, 0)
        assert is_closed(client)
