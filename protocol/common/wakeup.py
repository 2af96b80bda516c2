# SPDX-License-Identifier: GPL-3.0-or-later
"""Wakes a thread that waits on sockets."""

from __future__ import annotations

import contextlib
import select
import socket


class Wakeup:
    """A pair of sockets by which any thread wakes another: one end is polled, the other is written.

    The waiting thread owns everything except `wake`. If it reports its sleep (`falls_asleep`, then `awake`),
    waking it while awake needs no system call, which would release the interpreter lock. Without reports it
    counts as always asleep.
    """

    def __init__(self) -> None:
        self._polled, self._written = socket.socketpair()
        self._polled.setblocking(False)
        self._written.setblocking(False)
        self._asleep = True
        self._woken = False

    def fileno(self) -> int:
        """Return the descriptor to poll: readable once `wake` was called."""
        return self._polled.fileno()

    def wake(self) -> None:
        """End the current sleep, or else the next one immediately. Any thread, also after `close`."""
        # One byte is enough for any number of callers. A lost race costs one extra byte.
        if not self._woken:
            self._woken = True
            if self._asleep:
                self.wake_from_signal_handler()

    def wake_from_signal_handler(self) -> None:
        """Wake with a system call on each call: a handler may interrupt the sleeper between any two steps."""
        with contextlib.suppress(OSError):  # A full buffer wakes as well; after `close` nobody sleeps.
            self._written.send(b"\0")

    def falls_asleep(self) -> bool:
        """Report that the owner is about to poll; return False if it was woken and must not wait."""
        # In this order: either this sees the wake-up, or the waking thread sees that the owner sleeps.
        self._asleep = True
        return not self._woken

    def awake(self) -> None:
        """Report that the owner has polled and will handle everything that it may have been woken for."""
        self._asleep = False
        self._woken = False

    def clear(self) -> None:
        """Reset: `fileno` becomes readable at the next `wake`."""
        with contextlib.suppress(BlockingIOError):
            while len(self._polled.recv(4096)) == 4096:
                pass
        # Reset last: if `wake` is called in between, its byte is consumed, but its request is still handled.
        self._woken = False

    def wait(self, seconds: float | None) -> None:
        """Sleep until `wake` (also an earlier one), at most `seconds` (None: no limit)."""
        select.select([self._polled], [], [], seconds)

    def close(self) -> None:
        """Free the sockets."""
        self._polled.close()
        self._written.close()
