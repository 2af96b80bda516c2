# SPDX-License-Identifier: GPL-3.0-or-later
"""Wakes a thread that sleeps on sockets."""

from __future__ import annotations

import contextlib
import select
import socket


class Wakeup:
    """A pair of sockets by which any thread ends another's sleep: one end is polled, the other written to.

    The thread that sleeps owns everything but `wake`. If it tells when it sleeps (`falls_asleep`, then
    `awake`), waking it while it does not costs no system call, which would give up the interpreter. One that
    tells nothing counts as always asleep.
    """

    def __init__(self) -> None:
        self._polled, self._written = socket.socketpair()
        self._polled.setblocking(False)
        self._written.setblocking(False)
        self._asleep = True
        self._woken = False

    def fileno(self) -> int:
        """What to poll: readable once the sleeper has been woken."""
        return self._polled.fileno()

    def wake(self) -> None:
        """End the sleep, or the next one at once. Any thread, also after `close`."""
        # One byte is enough however many want to be heard. A lost race costs a byte too many.
        if not self._woken:
            self._woken = True
            if self._asleep:
                self.wake_from_signal_handler()

    def wake_from_signal_handler(self) -> None:
        """The same at the cost of a system call each time: a handler may interrupt the sleeper between any
        two steps of its own."""
        with contextlib.suppress(OSError):  # A full buffer wakes as well; after `close` nobody sleeps.
            self._written.send(b"\0")

    def falls_asleep(self) -> bool:
        """Tell that the owner is about to poll; returns False if it must not wait, having been woken."""
        # In this order: either this sees that somebody woke the owner, or that somebody sees that it sleeps.
        self._asleep = True
        return not self._woken

    def awake(self) -> None:
        """Tell that the owner has polled, and will look at all that it may have been woken for."""
        self._asleep = False
        self._woken = False

    def clear(self) -> None:
        """Forget all calls of `wake`: `fileno` is readable after the next one only."""
        with contextlib.suppress(BlockingIOError):
            while len(self._polled.recv(4096)) == 4096:
                pass
        # Afterwards: one that calls `wake` in between has its byte taken, but what it wants is still to be
        # looked at.
        self._woken = False

    def wait(self, seconds: float | None) -> None:
        """Sleep on this alone until `wake` (also an earlier one), at most so long (None: for ever)."""
        select.select([self._polled], [], [], seconds)

    def close(self) -> None:
        """Free the sockets."""
        self._polled.close()
        self._written.close()
