# SPDX-License-Identifier: GPL-3.0-or-later
"""A client that speaks ZeroMQ's protocol on a bare socket, and as badly as a test wants."""

import socket
import struct
from collections.abc import Sequence

GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32)
"""ZMTP 3.1, the mechanism NULL, not a server."""

PROPERTY = b"Socket-Type"
READY = b"\x05READY" + bytes([len(PROPERTY)]) + PROPERTY + struct.pack(">I", 6) + b"DEALER"

MORE, LONG, COMMAND = 1, 2, 4


def frame(body: bytes, *, more: bool = False) -> bytes:
    """A frame of a message."""
    if len(body) > 255:
        return bytes([LONG | MORE * more]) + struct.pack(">Q", len(body)) + body
    return bytes([MORE * more, len(body)]) + body


def command(body: bytes) -> bytes:
    """A frame that is a command."""
    return bytes([COMMAND, len(body)]) + body


def message(frames: Sequence[bytes]) -> bytes:
    """All frames of a message."""
    last = len(frames) - 1
    return b"".join(frame(each, more=index < last) for index, each in enumerate(frames))


def connect(port: int) -> socket.socket:
    """A connection of a DEALER to a port of this machine, after the handshake."""
    made = socket.create_connection(("127.0.0.1", port), timeout=60.0)
    shake_hands(made)
    return made


def connect_to(path: str) -> socket.socket:
    """The same to an ipc address, by its path."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.settimeout(60.0)
    made.connect(path)
    shake_hands(made)
    return made


def shake_hands(connection: socket.socket) -> None:
    """Greet the other side, and take its greeting."""
    connection.sendall(GREETING + command(READY))
    size = exactly(connection, len(GREETING) + 2)[-1]  # of its READY, as short as ours
    exactly(connection, size)


def exactly(connection: socket.socket, size: int) -> bytes:
    """The next bytes, so many."""
    came = b""
    while len(came) < size:
        part = connection.recv(size - len(came))
        assert part, "the connection was closed"
        came += part
    return came


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side has closed the connection, reading what comes until then or for 60 seconds."""
    try:
        while connection.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True
