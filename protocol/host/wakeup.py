"""Wakes a thread that sleeps on sockets."""

from __future__ import annotations

import contextlib
import select
import socket


class Waker:
    """Ends a thread's sleep from any other."""

    def __init__(self) -> None:
        self._out, self._in = socket.socketpair()
        self._out.setblocking(False)
        self._in.setblocking(False)

    def fileno(self) -> int:
        """Readable when somebody has called `wake`."""
        return self._out.fileno()

    def wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._in.send(b"\0")  # A full buffer wakes as well.

    def wait(self, seconds: float | None) -> None:
        """Sleep until `wake` (also an earlier one), at most so long."""
        select.select([self._out], [], [], seconds)

    def clear(self) -> None:
        """Forget all calls of `wake`."""
        with contextlib.suppress(BlockingIOError):
            while self._out.recv(4096):
                pass

    def close(self) -> None:
        self._out.close()
        self._in.close()
