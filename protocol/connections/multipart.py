# SPDX-License-Identifier: GPL-3.0-or-later
"""Multipart messages through a ZeroMQ socket, in as few steps of the interpreter as can be.

A call of an evaluator is one message there and one back, and on a fast device what the interpreter does with
them takes longer than the device. The methods of pyzmq's own `Socket` check types and combine flags, which
are enums, for each frame; those of its backend do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import zmq
from zmq.backend import Socket, zmq_poll

READABLE = int(zmq.POLLIN)
"""What `wait` waits for."""

_EVENTS = int(zmq.EVENTS)
_AT_ONCE, _MORE_AT_ONCE = int(zmq.NOBLOCK), int(zmq.NOBLOCK) | int(zmq.SNDMORE)

_send, _receive, _get = Socket.send, Socket.recv, Socket.get


def send(socket: zmq.Socket[Any], frames: Sequence[Any]) -> None:
    """Send a message of at least one frame without waiting. Raises zmq.ZMQError, among them zmq.Again.

    Frames under 64 KiB are copied (pyzmq's copy_threshold): cheaper than to keep track of them.
    """
    last = len(frames) - 1
    for index in range(last):
        _send(socket, frames[index], _MORE_AT_ONCE, False)
    _send(socket, frames[last], _AT_ONCE, False)


def receive(socket: zmq.Socket[Any], *, wait: bool = False) -> list[zmq.Frame]:
    """The frames of the next message. Raises zmq.Again if there is none: at once, or with `wait` when the
    socket's RCVTIMEO is over."""
    frame: Any = _receive(socket, 0 if wait else _AT_ONCE, False)
    frames = [frame]
    while frame.more:
        frame = _receive(socket, _AT_ONCE, False)
        frames.append(frame)
    return frames


def has_message(socket: zmq.Socket[Any]) -> bool:
    """Whether a message is there. Cheaper than an attempt to receive one that fails."""
    events: Any = _get(socket, _EVENTS)
    return bool(events & READABLE)


def wait(sockets: list[tuple[Any, int]], timeout_ms: int) -> list[tuple[Any, int]]:
    """Those of the sockets and file descriptors, each with READABLE, that have become readable within the
    time, negative for ever."""
    return zmq_poll(sockets, timeout_ms)
