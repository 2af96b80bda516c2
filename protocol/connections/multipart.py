# SPDX-License-Identifier: GPL-3.0-or-later
"""Multipart messages through a ZeroMQ socket, with little interpreter work.

A call of an evaluator is one message in each direction. On a fast device the interpreter takes longer than
the device. For each frame, pyzmq's `Socket` checks types and combines enum flags; its backend does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import zmq
from zmq.backend import Socket, zmq_poll

READABLE = int(zmq.POLLIN)
"""Event mask for `wait`."""

_EVENTS = int(zmq.EVENTS)
_AT_ONCE, _MORE_AT_ONCE = int(zmq.NOBLOCK), int(zmq.NOBLOCK) | int(zmq.SNDMORE)

_send, _receive, _get = Socket.send, Socket.recv, Socket.get


def send(socket: zmq.Socket[Any], frames: Sequence[Any]) -> None:
    """Send a message of at least one frame without waiting. Raises zmq.ZMQError, among them zmq.Again.

    Frames under 64 KiB are copied (pyzmq's copy_threshold), which is cheaper than tracking them.
    """
    last = len(frames) - 1
    for index in range(last):
        _send(socket, frames[index], _MORE_AT_ONCE, False)
    _send(socket, frames[last], _AT_ONCE, False)


def receive(socket: zmq.Socket[Any], *, wait: bool = False) -> list[zmq.Frame]:
    """Return the frames of the next message. Raises zmq.Again if there is none.
    wait: block for up to the socket's RCVTIMEO."""
    frame: Any = _receive(socket, 0 if wait else _AT_ONCE, False)
    frames = [frame]
    while frame.more:
        frame = _receive(socket, _AT_ONCE, False)
        frames.append(frame)
    return frames


def has_message(socket: zmq.Socket[Any]) -> bool:
    """Return True if a message can be received. Cheaper than a failing `receive`."""
    events: Any = _get(socket, _EVENTS)
    return bool(events & READABLE)


def wait(sockets: list[tuple[Any, int]], timeout_ms: int) -> list[tuple[Any, int]]:
    """Return the readable ones of these sockets and descriptors, each with READABLE.
    timeout_ms: negative for no limit."""
    return zmq_poll(sockets, timeout_ms)
