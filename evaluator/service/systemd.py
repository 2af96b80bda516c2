# SPDX-License-Identifier: GPL-3.0-or-later
"""Telling systemd how the service is (sd_notify): ready, reloading, stopping, and that it is alive.

The protocol is a datagram of NAME=VALUE lines to the socket that NOTIFY_SOCKET names; see sd_notify(3).
"""

from __future__ import annotations

import contextlib
import os
import socket
import time

SHARE_OF_WATCHDOG = 0.4
"""A sign of life is sent after this share of the time within which systemd wants one."""


class ServiceManager:
    """The process that started this one, if it asked to be told. Any thread may call the methods; without
    such a process they do nothing."""

    def __init__(self) -> None:
        self._address = os.environ.get("NOTIFY_SOCKET", "")
        within_us = os.environ.get("WATCHDOG_USEC", "")
        wanted = (
            self._address
            and within_us.isdecimal()
            and os.environ.get("WATCHDOG_PID") in (None, str(os.getpid()))
        )
        self._every_s = SHARE_OF_WATCHDOG * int(within_us) / 1e6 if wanted else float("inf")
        self._next_alive = time.monotonic() if wanted else float("inf")

    @property
    def every_ms(self) -> float:
        """How often at least `alive` is to be called, infinite if never."""
        return 1000 * self._every_s

    def ready(self, status: str) -> None:
        """The service takes requests, or goes on after a reload."""
        self._notify("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """Settings are being read again; `ready` follows."""
        self._notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """The service is about to end."""
        self._notify("STOPPING=1", "STATUS=draining")

    def alive(self) -> None:
        """The service's loop goes round; told as often as is wanted."""
        now = time.monotonic()
        if now >= self._next_alive:
            self._next_alive = now + self._every_s
            self._notify("WATCHDOG=1")

    def _notify(self, *lines: str) -> None:
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        # The caller may be gone; that is no reason to end.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.connect(address)
            sender.send("\n".join(lines).encode())
