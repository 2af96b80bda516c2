# SPDX-License-Identifier: GPL-3.0-or-later
"""What systemd is told, by a real process over a real socket."""

import signal
import socket
import sys
import tempfile
from collections.abc import Iterator

import pytest

from tests.evaluator.service.process import serving

WAIT_S = 60.0

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="systemd is Linux's")


@pytest.fixture
def manager() -> Iterator[socket.socket]:
    """The socket that a service manager listens at."""
    with (
        tempfile.TemporaryDirectory(prefix="wf") as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening,
    ):
        listening.bind(f"{folder}/notify")
        listening.settimeout(WAIT_S)
        yield listening


def told(manager: socket.socket) -> dict[str, str]:
    """The next message, signs of life left out."""
    while True:
        lines = dict(line.split("=", 1) for line in manager.recv(4096).decode().splitlines())
        if lines != {"WATCHDOG": "1"}:
            return lines


def test_it_tells_ready_alive_reloading_stopping(manager: socket.socket, environment: dict[str, str]) -> None:
    environment |= {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "50000"}
    with serving(environment, "--backend", "random", "--address", "tcp://127.0.0.1:0") as process:
        assert told(manager)["READY"] == "1"
        while manager.recv(4096) != b"WATCHDOG=1":
            pass
        process.send_signal(signal.SIGHUP)
        assert told(manager)["RELOADING"] == "1"
        assert told(manager)["READY"] == "1"
        process.send_signal(signal.SIGTERM)
        assert told(manager)["STOPPING"] == "1"
        assert process.wait(WAIT_S) == 0
