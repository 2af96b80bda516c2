# SPDX-License-Identifier: GPL-3.0-or-later
"""Child processes of benchmarks: their output, their errors, and their reliable termination."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import psutil

TIME_LIMIT = 900.0
"""Timeout in seconds for a benchmark's command."""

END_WITHIN = 3.0
"""Seconds from terminating a process to killing it."""


class CommandError(Exception):
    """A command failed. The message has the command, its exit code and the end of its stderr."""


@contextlib.contextmanager
def started(
    command: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    stderr: int | IO[str] = subprocess.PIPE,
    time_limit: float = TIME_LIMIT,
) -> Iterator[subprocess.Popen[str]]:
    """Start a command with text pipes; on exit from the block it and its descendants have ended.

    The process gets a session, so that Ctrl-C reaches only the benchmark, which then ends the process here.
    After time_limit seconds it is ended too; its reader sees the end of its output. Raises CommandError if it
    cannot be started.
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

    # In a thread, so that no signal interrupts us between its start and storing the process.
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
    """End a process and its descendants if it is running, and close its pipes."""
    if process.poll() is None:
        end_family(process)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    process.wait()


def end_family(process: subprocess.Popen[str]) -> None:
    """Terminate a process and all its descendants, and kill those that do not end."""
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
    """Run a command and return its output. given: its standard input.

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
    """Return an error message for a failed command, with its last lines of stderr."""
    lines = complaints.strip().splitlines()[-12:]
    return "\n".join([" ".join(command), f"ended with exit code {code}" + ":" * bool(lines), *lines])


def processor_seconds() -> float:
    """Return the CPU time, user and system, of this process's ended children and of theirs.
    Raises CommandError if the system does not count it."""
    try:
        import resource
    except ImportError:  # not on Windows
        raise CommandError("this system does not count the processor time of ended processes") from None
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
