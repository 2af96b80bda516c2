# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a program in a child process that stops cleanly when its parent is gone.

    python -P -m wavefront_launcher training.step PROGRAM [ARGUMENT …]

Standard input is a pipe from the parent. At its end of file the program gets SIGTERM, on which matches,
self-play and training save their state.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO

from protocol.common.processes import child_command, own_input
from wavefront_launcher import start


def run_step(program: str, arguments: Sequence[str], *, output: IO[str] | None = None) -> tuple[int, str]:
    """Run a program and return its exit status and kept output. SIGTERM is forwarded to it.

    The program ends with this process, however that ends.
    program: as in `wavefront_launcher.start`. output: destination of its standard output; None keeps it.
    """
    command = child_command("training.step", program, *arguments)
    target = subprocess.PIPE if output is None else output
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=target, encoding="utf-8") as process:
        before = signal.signal(signal.SIGTERM, lambda number, frame: process.terminate())
        try:
            kept = process.stdout.read() if process.stdout is not None else ""
            return process.wait(), kept
        finally:
            signal.signal(signal.SIGTERM, before)


def _end_with_starter(descriptor: int) -> None:
    while os.read(descriptor, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Run the program that the command line names."""
    threading.Thread(target=_end_with_starter, args=(own_input(),), daemon=True).start()
    del sys.argv[0]
    start(sys.argv[0])
