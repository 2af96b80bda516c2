# SPDX-License-Identifier: GPL-3.0-or-later
"""Notifications to systemd (sd_notify): ready, reloading, stopping and watchdog.

The protocol is a datagram of NAME=VALUE lines to the socket that NOTIFY_SOCKET names; see sd_notify(3).
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import time

SHARE_OF_WATCHDOG = 0.4
"""Share of systemd's watchdog interval after which the next notification is sent."""


class SystemdNotices:
    """Notifies the service manager, if NOTIFY_SOCKET is set; otherwise the methods do nothing. Any thread may
    call them."""

    def __init__(self) -> None:
        self._address = os.environ.get("NOTIFY_SOCKET", "")
        within_us = os.environ.get("WATCHDOG_USEC", "")
        wanted = (
            self._address
            and within_us.isdecimal()
            and os.environ.get("WATCHDOG_PID") in (None, str(os.getpid()))
        )
        self._every_ms = SHARE_OF_WATCHDOG * int(within_us) / 1000 if wanted else math.inf
        self.next_alive_ms = 0.0 if wanted else math.inf
        """When to call `alive` next, in milliseconds of the monotonic clock; infinite without a watchdog."""

    def ready(self, status: str) -> None:
        """Report that the service accepts requests, at the start or after a reload."""
        self._notify("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """Report that settings are being reloaded; `ready` follows."""
        self._notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Report that the service is about to end."""
        self._notify("STOPPING=1", "STATUS=draining")

    def alive(self, now: float) -> None:
        """Report that the service's loop runs. now: milliseconds of the monotonic clock."""
        self.next_alive_ms = now + self._every_ms
        self._notify("WATCHDOG=1")

    def _notify(self, *lines: str) -> None:
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        # The service manager may be gone, which must not end the service.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.connect(address)
            sender.send("\n".join(lines).encode())
