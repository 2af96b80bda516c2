# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands that a benchmark starts: what they print, what they failed with, and that none outlives it."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import psutil

TIME_LIMIT = 900.0
"""Seconds after which a command of a benchmark counts as hung."""

END_WITHIN = 3.0
"""Seconds that a process has to end by itself once it was asked to."""


class CommandError(Exception):
    """A command failed; the message has the command, how it ended and the end of what it wrote to stderr."""


@contextlib.contextmanager
def started(
    command: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    stderr: int | IO[str] = subprocess.PIPE,
    time_limit: float = TIME_LIMIT,
) -> Iterator[subprocess.Popen[str]]:
    """Start a command with pipes for text; it and all that it started have ended when the block is left.

    The process has a session of its own, so that Ctrl-C reaches only the benchmark, which then ends it here.
    After time_limit seconds it is ended too, which its reader sees as the end of its output. Raises
    CommandError if it cannot be started.
    """
    made: list[subprocess.Popen[str]] = []
    failures: list[OSError] = []

    def start() -> None:
        try:
            made.append(
                subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    text=True,
                    encoding="utf-8",
                    errors="replace",
                    cwd=folder,
                    env=dict(environment),
                    start_new_session=True,
                )
            )
        except OSError as error:
            failures.append(error)

    # On a thread of its own, which no signal interrupts between the start and our hearing of it.
    starter = threading.Thread(target=start)
    watchdog: threading.Timer | None = None
    try:
        starter.start()
        starter.join()
        for error in failures:
            raise CommandError(f"{' '.join(command)}\ncannot be started: {error}") from error
        watchdog = threading.Timer(time_limit, end_family, made)
        watchdog.daemon = True
        watchdog.start()
        yield made[0]
    finally:
        if starter.ident is not None:
            starter.join()
        if watchdog is not None:
            watchdog.cancel()
        for process in made:
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """End a process with its descendants, if it has not ended, and close its pipes."""
    if process.poll() is None:
        end_family(process)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    process.wait()


def end_family(process: subprocess.Popen[str]) -> None:
    """Ask a process and all its descendants to end, and kill those that do not."""
    try:
        descendants = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return
    process.terminate()
    for descendant in descendants:
        with contextlib.suppress(psutil.NoSuchProcess):
            descendant.terminate()
    try:
        process.wait(END_WITHIN)
    except subprocess.TimeoutExpired:
        process.kill()
    _, alive = psutil.wait_procs(descendants, timeout=END_WITHIN)
    for descendant in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            descendant.kill()


def output_of(
    command: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    given: str | None = None,
    time_limit: float = TIME_LIMIT,
) -> str:
    """Run a command to its end and return what it printed. given: its standard input.

    Raises CommandError if it cannot be started, fails, or takes more than time_limit seconds.
    """
    with started(command, folder=folder, environment=environment, time_limit=2 * time_limit) as process:
        try:
            printed, complaints = process.communicate(given, timeout=time_limit)
        except subprocess.TimeoutExpired:
            raise CommandError(f"{' '.join(command)}\ndid not end within {time_limit:g} s") from None
        if process.returncode:
            raise CommandError(failure(command, process.returncode, complaints))
    return printed


def failure(command: Sequence[str], code: int, complaints: str) -> str:
    """A message on a failed command with the last lines that it wrote to stderr."""
    lines = complaints.strip().splitlines()[-12:]
    return "\n".join([" ".join(command), f"ended with exit code {code}" + ":" * bool(lines), *lines])


def processor_seconds() -> float:
    """Processor time, in user and system mode, of the ended processes that this one started and of those that
    they had waited for. Raises CommandError where the system does not count it."""
    try:
        import resource
    except ImportError:  # not on Windows
        raise CommandError("this system does not count the processor time of ended processes") from None
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
