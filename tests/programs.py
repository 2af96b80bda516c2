# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that tests run."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, chdir, contextmanager, redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from unittest.mock import patch

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


def suspend(process: Any) -> Any:
    """Suspend a psutil.Process, and wait until its threads have stopped: some run on for a moment."""
    process.suspend()
    while any(") T " not in each.read_text() for each in Path(f"/proc/{process.pid}/task").glob("*/stat")):
        os.sched_yield()
    return process


def python(code: str, *arguments: object, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a program in Python; otherwise as `run`."""
    return run(sys.executable, "-c", code, *arguments, **more)


def command(
    *words: object,
    program: str = "engine",
    status: int | None = 0,
    input: str = "",
    cwd: Path | None = None,
    encoding: str = "utf-8",
    errors: str = "strict",
) -> subprocess.CompletedProcess[str]:
    """Run a command in this process, as to start and to import takes seconds; otherwise as `run`. program:
    engine, evaluator or training. encoding, errors: of the input."""
    arguments = list(map(str, words))
    with ExitStack() as stack:
        given = stack.enter_context(TemporaryFile("w+", encoding=encoding, errors=errors, newline=""))
        given.write(input)
        given.seek(0)
        before = os.dup(0)
        stack.callback(os.close, before)
        os.dup2(given.fileno(), 0)
        stack.callback(os.dup2, before, 0)
        standard = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
        stack.enter_context(patch.object(sys, "stdin", standard))
        for each in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
            stack.callback(signal.signal, each, signal.getsignal(each))  # a command that ends ignores them
        stack.enter_context(chdir(cwd or "."))
        # Files, as children write there, too.
        output, said = (
            stack.enter_context(TemporaryFile("w+", encoding="utf-8", errors="surrogateescape"))
            for _ in range(2)
        )
        with redirect_stdout(output), redirect_stderr(said):
            try:
                ended = int(import_module(f"{program}.cli").main(arguments))
            except SystemExit as error:
                ended = int(error.code or 0)
        for file in (output, said):
            file.seek(0)
        done = subprocess.CompletedProcess(arguments, ended, output.read(), said.read())
    assert status in (None, ended), f"{done.stdout}{done.stderr}"
    return done


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
