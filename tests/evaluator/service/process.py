# SPDX-License-Identifier: GPL-3.0-or-later
"""`python -m evaluator serve` as a process of a test: started, read, and ended."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq

from tests.evaluator.service.echo import WAIT_S
from tests.programs import started

needs_ipc = pytest.mark.skipif(not zmq.has("ipc"), reason="this platform has no ipc")
needs_posix = pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")


EVALUATOR = ("-m", "evaluator")
"""Python's arguments for the program."""


def limited(descriptors: int) -> tuple[str, ...]:
    """The same for a program that may have so many files open."""
    limit = f"resource.setrlimit(resource.RLIMIT_NOFILE, ({descriptors}, {descriptors}))"
    return ("-c", f"import resource; {limit}; from evaluator.cli import console; console()")


@contextmanager
def serving(
    environment: dict[str, str], *flags: str, program: Sequence[str] = EVALUATOR
) -> Iterator[subprocess.Popen[str]]:
    """The process, killed at the end if it is still there."""
    with started(sys.executable, *program, "serve", *flags, env=environment) as process:
        yield process


def event(process: subprocess.Popen[str], name: str) -> dict[str, Any]:
    """The next JSON line of an embedded evaluator, which must be of that name."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()[1]
    message: dict[str, Any] = json.loads(line)
    assert message["event"] == name, message
    return message


def wait_for_line(process: subprocess.Popen[str], text: str) -> str:
    """The first line on stderr with that text."""
    assert process.stderr is not None
    for line in process.stderr:
        if text in line:
            return line
    raise AssertionError(f"ended with status {process.wait(WAIT_S)} without saying {text!r}")


def sockets(environment: dict[str, str]) -> list[Path]:
    """Everything left in the folder for sockets, but for the well-known folder itself."""
    return list(Path(environment["TMPDIR"]).glob("**/wavefront-*/*"))


def free_port() -> int:
    with zmq.Context() as context, context.socket(zmq.REP) as socket:
        return socket.bind_to_random_port("tcp://127.0.0.1")
