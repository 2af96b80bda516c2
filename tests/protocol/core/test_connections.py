# SPDX-License-Identifier: GPL-3.0-or-later
"""A client's and a service's end of an ipc address, with each other, with ZeroMQ's, and with bare sockets."""

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import zmq

if sys.platform != "linux":
    pytest.skip("there are such connections on Linux only", allow_module_level=True)

from protocol._core import Hub, Stream
from protocol.common.wakeup import Wakeup
from tests.evaluator.zmtp import (
    COMMAND,
    GREETING,
    READY,
    command,
    connect_to,
    exactly,
    frame,
    is_closed,
    message,
    shake_hands,
)

WAIT_S = 30.0
WAIT_MS = int(1000 * WAIT_S)

LIMITS = {"frame": 4_000_000, "message": 9_000_000, "parts": 8}

SIZES = (0, 1, 255, 256, 65_536, 300_000, 3_000_001)
"""Of frames: with a length of one byte and of eight, within and beyond what a socket takes at once."""


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "service")


def listening(path: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.bind(path)
    made.listen(64)
    made.settimeout(WAIT_S)
    return made


def hub_at(path: str, **changed: int) -> Hub:
    """A hub with other limits than LIMITS."""
    hub = Hub(**{**LIMITS, "kept": 20_000_000, "connections": 50, **changed})
    hub.listen(listening(path).detach())
    return hub


@contextlib.contextmanager
def stream_to(path: str, **changed: int) -> Iterator[Stream]:
    with closing(Stream(path.encode(), **{**LIMITS, **changed})) as stream:
        yield stream


def next_of(hub: Hub) -> tuple[int, list[bytes]]:
    """The next message, and who sent it."""
    end = time.perf_counter() + WAIT_S
    while (found := hub.take()) is None:
        assert time.perf_counter() < end, "no message came"
        hub.wait(100)
    return found[0], [bytes(each) for each in found[1]]


def serve_until(hub: Hub, stream: Stream, *, ms: int = 1) -> list[bytes]:
    """What comes to a client of a hub which nobody else serves."""
    end = time.perf_counter() + WAIT_S
    while (frames := stream.receive(ms)) is None:
        assert time.perf_counter() < end, "no message came"
        hub.wait(0)
    return [bytes(each) for each in frames]


def greet(hub: Hub, stream: Stream) -> int:
    """Have both sides know each other; the number of the connection."""
    assert stream.send([b"first"])
    while not stream.was_ready:
        hub.wait(0)
        assert stream.receive(1) is None
    number, came = next_of(hub)
    assert came == [b"first"]
    return number


def test_messages_pass_both_ways_bit_for_bit(path: str) -> None:
    hub = hub_at(path)
    with stream_to(path) as stream:
        number = greet(hub, stream)
        sent = [os.urandom(size) for size in SIZES]
        assert stream.send(sent)
        assert next_of(hub) == (number, sent)
        assert hub.send(number, sent)
        assert serve_until(hub, stream) == sent
        assert hub.address_of(number) == f"localhost:{os.getuid()}:{os.getgid()}:{os.getpid()}"


def test_arrays_are_sent_as_they_lie_in_memory_and_received_aligned(path: str) -> None:
    hub = hub_at(path)
    with stream_to(path) as stream:
        number = greet(hub, stream)
        numbers = np.arange(1000, dtype=np.uint64)
        stream.send([b"x", numbers.data])
        hub.wait(WAIT_MS)
        found = hub.take()
        assert found is not None and found[0] == number
        came = np.frombuffer(memoryview(found[1][1]), np.uint64)
        assert came.flags.aligned and not came.flags.writeable
        assert np.array_equal(came, numbers)


def test_a_dealer_of_zeromq_speaks_with_a_hub(path: str) -> None:
    hub = hub_at(path)
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        dealer.rcvtimeo = WAIT_MS
        dealer.connect(f"ipc://{path}")
        sent = [os.urandom(size) for size in SIZES]
        dealer.send_multipart(sent)
        number, came = next_of(hub)
        assert came == sent
        hub.send(number, sent)
        while not dealer.poll(1):
            hub.wait(0)
        assert dealer.recv_multipart() == sent


def test_a_stream_speaks_with_a_router_of_zeromq(path: str) -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.linger = 0
        router.rcvtimeo = WAIT_MS
        router.bind(f"ipc://{path}")
        with stream_to(path) as stream:
            sent = [os.urandom(size) for size in SIZES]
            stream.send(sent)
            while not stream.was_ready:
                assert stream.receive(1) is None
            identity, *came = router.recv_multipart()
            assert came == sent
            router.send_multipart([identity, *sent])
            frames = stream.receive(WAIT_MS)
            assert frames is not None and [bytes(each) for each in frames] == sent


def test_several_messages_that_come_together_are_received_one_by_one(path: str) -> None:
    with listening(path) as listener, stream_to(path) as stream:
        service, _ = listener.accept()
        with service:
            shake_hands(service)
            service.sendall(message([b"a", b"b"]) + command(b"\x04PONG") + message([b"c"]))
            first = stream.receive(WAIT_MS)
            assert first is not None and list(map(bytes, first)) == [b"a", b"b"]
            assert stream.has_message
            second = stream.receive(0)
            assert second is not None and list(map(bytes, second)) == [b"c"]
            assert stream.receive(0) is None


def test_heartbeats_are_answered_with_what_they_bring(path: str) -> None:
    ping, pong = b"\x04PING\x00\x0ahello", b"\x04PONGhello"
    hub = hub_at(path)
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with client:
        client.settimeout(WAIT_S)
        client.connect(path)
        client.sendall(GREETING + command(READY) + command(ping))
        hub.wait(WAIT_MS)  # the connection
        hub.wait(WAIT_MS)  # what it has sent
        exactly(client, len(GREETING))
        size = exactly(client, 2)[1]
        exactly(client, size)
        assert exactly(client, 2 + len(pong)) == command(pong)


def test_a_client_that_nobody_uses_says_that_it_is_there(path: str) -> None:
    with listening(path) as listener, stream_to(path) as stream:
        service, _ = listener.accept()
        with service:
            service.settimeout(WAIT_S)
            shake_hands(service)
            assert stream.receive(0) is None
            while not stream.was_ready:
                assert stream.receive(10) is None
            for _ in range(2):
                assert exactly(service, 7) == command(b"\x04PONG")


@contextlib.contextmanager
def with_older(path: str) -> Iterator[tuple[Stream, socket.socket]]:
    """A stream, and its other end: a bare socket that has said that it speaks ZMTP 3.0, which has no
    heartbeats."""
    with listening(path) as listener, stream_to(path) as stream:
        service, _ = listener.accept()
        with service:
            service.settimeout(WAIT_S)
            service.sendall(GREETING[:11] + b"\0" + GREETING[12:] + command(READY))
            exactly(service, len(GREETING))
            exactly(service, exactly(service, 2)[1])
            while not stream.was_ready:
                assert stream.receive(10) is None
            yield stream, service


def test_a_peer_without_heartbeats_gets_none(path: str) -> None:
    """What is sent after more than a second is the next that comes."""
    with with_older(path) as (stream, service):
        assert stream.receive(1500) is None
        stream.send([b"x"])
        assert exactly(service, 3) == frame(b"x")


def test_frames_are_sent_later_when_the_kernel_buffer_is_full(path: str) -> None:
    """Nobody calls the stream meanwhile, and what was sent may be changed."""
    with with_older(path) as (stream, service):
        body = bytearray(os.urandom(5_000_000))
        wanted = message([bytes(body), b"end"]) + message([b"next"])
        assert stream.send([body, b"end"])
        assert stream.send([b"next"])
        body[:] = bytes(len(body))
        assert exactly(service, len(wanted)) == wanted


def test_wait_ends_with_time_descriptor_or_signal(path: str) -> None:
    hub = hub_at(path)
    with stream_to(path) as stream:
        greet(hub, stream)
        assert stream.receive(1) is None
        wakeup = Wakeup()
        wakeup.wake()
        assert stream.receive(-1, wakeup.fileno()) is None
        wakeup.close()

        def interrupt(number: int, where: FrameType | None) -> None:
            raise InterruptedError

        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(InterruptedError):
                stream.receive(-1)
            signal.signal(signal.SIGALRM, lambda number, where: None)
            signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
            began = time.perf_counter()
            assert stream.receive(100) is None
            assert time.perf_counter() >= began + 0.1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def test_of_a_lost_connection_what_came_before_is_received_first(path: str) -> None:
    with listening(path) as listener, stream_to(path) as stream:
        service, _ = listener.accept()
        shake_hands(service)
        service.sendall(message([b"last"]))
        service.close()
        frames = stream.receive(WAIT_MS)
        assert frames is not None and list(map(bytes, frames)) == [b"last"]
        with pytest.raises(ConnectionError, match="peer"):
            stream.receive(WAIT_MS)
        assert stream.was_ready
        assert not stream.send([b"x"])


def test_nobody_there_is_an_error_of_the_system(path: str) -> None:
    with pytest.raises(FileNotFoundError):
        Stream(path.encode(), **LIMITS)
    listening(path).close()
    with pytest.raises(ConnectionRefusedError):
        Stream(path.encode(), **LIMITS)
    with pytest.raises(OSError, match="name too long"):
        Stream(b"/" + b"x" * 200, **LIMITS)


@pytest.mark.parametrize("frames", [[], [b""] * 17, ["text"]])
def test_send_rejects_an_invalid_message(path: str, frames: list[Any]) -> None:
    with listening(path), stream_to(path) as stream, pytest.raises((ValueError, TypeError)):
        stream.send(frames)


WRONG = {
    "another protocol": (b"GET / HTTP/1.1\r\n\r\n", "foreign"),
    "no signature": (b"\xff" + bytes(9), "foreign"),
    "an old version": (GREETING[:10] + b"\2", "foreign"),
    "CURVE": (GREETING.replace(b"NULL", b"CURV"), "foreign"),
    "no READY": (GREETING + command(b"\x05ERROR\x00"), "foreign"),
    "a message before READY": (GREETING + frame(b"x"), "malformed"),
    "a long READY": (GREETING + bytes([COMMAND | 2]) + (8193).to_bytes(8, "big"), "frame"),
    "unknown flags": (GREETING + command(READY) + b"\x08\0", "malformed"),
    "a command with more": (GREETING + command(READY) + b"\x05\0", "malformed"),
    "a long command": (GREETING + command(READY) + bytes([COMMAND | 2]) + (1025).to_bytes(8, "big"), "frame"),
    "a short PING": (GREETING + command(READY) + command(b"\x04PING"), "malformed"),
    "a PING with too much": (GREETING + command(READY) + command(b"\x04PING\0\0" + bytes(17)), "malformed"),
    "a large frame": (GREETING + command(READY) + b"\2" + (4_000_001).to_bytes(8, "big"), "frame"),
    "a frame of 2^64 - 1": (GREETING + command(READY) + b"\2" + b"\xff" * 8, "frame"),
    "a large message": (GREETING + command(READY) + frame(bytes(3_000_001), more=True) * 3, "message"),
    "many frames": (GREETING + command(READY) + frame(b"", more=True) * 9, "parts"),
}


@pytest.mark.parametrize(("sent", "reason"), WRONG.values(), ids=WRONG.keys())
def test_only_client_that_breaks_the_protocol_is_disconnected(path: str, sent: bytes, reason: str) -> None:
    hub = hub_at(path)
    with stream_to(path) as stream, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as hostile:
        number = greet(hub, stream)
        hostile.settimeout(WAIT_S)
        hostile.connect(path)
        hostile.setblocking(False)
        left = sent
        endings: list[tuple[str, str]] = []
        end = time.perf_counter() + WAIT_S
        while not endings:
            assert time.perf_counter() < end, "it may go on"
            with contextlib.suppress(BlockingIOError, BrokenPipeError):
                left = left[hostile.send(left) :] if left else left
            hub.wait(1)
            endings = hub.endings()
        assert [why for _, why in endings] == [reason]
        hostile.setblocking(True)
        assert is_closed(hostile)
        assert len(hub) == 1
        assert hub.send(number, [b"still there"])
        assert serve_until(hub, stream) == [b"still there"]


@pytest.mark.parametrize(("sent", "reason"), WRONG.values(), ids=WRONG.keys())
def test_a_service_that_breaks_the_protocol_is_lost(path: str, sent: bytes, reason: str) -> None:
    with listening(path) as listener, stream_to(path) as stream:
        service, _ = listener.accept()
        with service, contextlib.suppress(OSError):
            service.setblocking(False)
            left = sent
            with pytest.raises(ConnectionError, match=reason):
                while True:
                    with contextlib.suppress(BlockingIOError, BrokenPipeError):
                        left = left[service.send(left) :] if left else left
                    assert stream.receive(1) is None


def test_client_is_disconnected_when_it_leaves_too_much_unread(path: str) -> None:
    hub = hub_at(path, kept=1_000_000)
    with stream_to(path) as stream:
        greet(hub, stream)
        with connect_in_turn(hub, path) as greedy:
            greedy.sendall(message([b"who"]))
            number, _ = next_of(hub)
            sent = 0
            while hub.send(number, [bytes(100_000)]):
                sent += 1
                assert sent < 100
            assert sent >= 10  # what may be kept, and what the system has taken
            hub.wait(WAIT_MS)
            assert [why for _, why in hub.endings()] == ["unread"]
            assert hub.take() is None
            assert hub.ended() == [number]
            assert not hub.send(number, [b"x"])
        assert len(hub) == 1


@contextlib.contextmanager
def connect_in_turn(hub: Hub, path: str) -> Iterator[socket.socket]:
    """A bare connection to a hub that nobody else serves, after the handshake."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
        made.settimeout(WAIT_S)
        made.connect(path)
        made.sendall(GREETING + command(READY))
        before = len(hub)
        while len(hub) == before:
            hub.wait(WAIT_MS)
        hub.wait(WAIT_MS)
        exactly(made, exactly(made, len(GREETING) + 2)[-1])
        yield made


def test_answers_that_wait_are_written_when_there_is_room(path: str) -> None:
    hub = hub_at(path)
    with connect_in_turn(hub, path) as slow:
        slow.sendall(message([b"who"]))
        number, _ = next_of(hub)
        body = os.urandom(3_000_000)
        for _ in range(3):
            assert hub.send(number, [body])
        wanted = message([body]) * 3
        came = b""
        while len(came) < len(wanted):
            slow.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                came += slow.recv(1 << 20)
            hub.wait(1)
        assert came == wanted


def test_the_end_of_a_client_is_reported_after_its_messages(path: str) -> None:
    hub = hub_at(path)
    with connect_in_turn(hub, path) as client:
        client.sendall(message([b"a"]) + message([b"b"]))
    hub.wait(WAIT_MS)
    while len(hub):
        hub.take() if hub.has_message else hub.wait(WAIT_MS)
    # Both messages may have been taken by the loop above, the end follows them.
    while not (gone := hub.ended()):
        hub.take()
        hub.wait(0)
    assert len(gone) == 1
    assert hub.address_of(gone[0]) is None


def test_without_descriptors_for_more_those_there_are_are_served(path: str) -> None:
    resource = pytest.importorskip("resource")
    hub = hub_at(path)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with stream_to(path) as stream, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        number = greet(hub, stream)
        other.settimeout(WAIT_S)
        lowest = os.dup(0)
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, before[1]))
        try:
            other.connect(path)
            hub.wait(WAIT_MS)
            assert len(hub) == 1
            hub.send(number, [b"x"])
            assert serve_until(hub, stream) == [b"x"]
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        while len(hub) == 1:
            hub.wait(1000)


def test_a_hub_that_ends_sends_what_waits_first(path: str) -> None:
    hub = hub_at(path)
    with stream_to(path) as stream:
        number = greet(hub, stream)
        hub.send(number, [b"last"])
        hub.close(1000)
        frames = stream.receive(WAIT_MS)
        assert frames is not None and list(map(bytes, frames)) == [b"last"]
        with pytest.raises(ConnectionError, match="peer"):
            stream.receive(WAIT_MS)
    with pytest.raises(ConnectionRefusedError):
        connect_to(path)
