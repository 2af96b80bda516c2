# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that tests run."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.paths import REPOSITORY

ENGINE = (sys.executable, str(REPOSITORY / "run_engine.py"))
EVALUATOR = (sys.executable, "-m", "evaluator")


def run(*command: object, status: int | None = 0, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a command, with its output as text. status: the one that it must have; None: any. more: arguments
    of subprocess.run."""
    usual: dict[str, Any] = {"capture_output": True, "encoding": "utf-8", "timeout": 120}
    done: subprocess.CompletedProcess[str] = subprocess.run(list(map(str, command)), **usual | more)
    assert status in (None, done.returncode), f"{done.stdout}{done.stderr}"
    return done


def python(code: str, *arguments: object, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a program in Python; otherwise as `run`."""
    return run(sys.executable, "-c", code, *arguments, **more)


@contextmanager
def started(*command: object, **more: Any) -> Iterator[subprocess.Popen[str]]:
    """Start a command, with pipes as its standard streams, and kill it at the end if it still runs. more:
    arguments of subprocess.Popen."""
    usual: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(list(map(str, command)), **usual | {"encoding": "utf-8"} | more) as process:
        try:
            yield process
        finally:
            process.kill()


def say(process: subprocess.Popen[str], text: str) -> None:
    """Write to the standard input of a program."""
    assert process.stdin is not None
    process.stdin.write(text)
    process.stdin.flush()
