# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a program in a process of its own, which ends in order when the process that started it is gone.

    python -P -m wavefront_launcher training.step PROGRAM [ARGUMENT …]

Standard input is a pipe whose other end that process holds: its end of file is the sign. The program gets
SIGTERM then, at which matches, self-play and training write down what they have.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO

from protocol.host.processes import child_command
from wavefront_launcher import start


def run_step(program: str, arguments: Sequence[str], *, output: IO[str] | None = None) -> tuple[int, str]:
    """Run a program to its end. SIGTERM is passed on to it, and it ends with this process, however that ends.

    program: as `wavefront_launcher.start` takes it. output: where its standard output goes; None keeps it.
    Returns the exit status and the output kept.
    """
    command = child_command("training.step", program, *arguments)
    target = subprocess.PIPE if output is None else output
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=target, text=True) as process:
        before = signal.signal(signal.SIGTERM, lambda number, frame: process.terminate())
        try:
            kept = process.stdout.read() if process.stdout is not None else ""
            return process.wait(), kept
        finally:
            signal.signal(signal.SIGTERM, before)


def _end_with_starter() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    """Run what the command line names."""
    threading.Thread(target=_end_with_starter, daemon=True).start()
    del sys.argv[0]
    start(sys.argv[0])
