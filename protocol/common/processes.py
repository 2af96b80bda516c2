# SPDX-License-Identifier: GPL-3.0-or-later
"""How multi-threaded programs run and exit, and how they start child processes.

A UCI engine imports this before it answers, so slow imports are local to functions.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from io import TextIOWrapper
from typing import Any, NoReturn, TypeVar

from protocol.common.extras import missing

T = TypeVar("T")

INTERRUPTED = 130
"""Exit status after Ctrl-C, as in shells: 128 plus the signal number."""

FULL = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}
"""Error numbers of a full disk or an exceeded quota."""


def console(main: Callable[[], int]) -> NoReturn:
    """Run `main` of a console script and end the process with the exit status that it returns.

    The status is INTERRUPTED after Ctrl-C at any time, and 0 if the reader closed the output (`… | head`).
    A full disk or a missing package is reported in one line, with status 1. All output is UTF-8, also on
    Windows, and a character that a terminal's encoding lacks becomes "?".
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8" if sys.platform == "win32" else None, errors="replace")
    try:
        status = main()
        if sys.stdout is not None:
            sys.stdout.flush()  # Here a closed pipe is handled; at exit it would not be.
    except KeyboardInterrupt:
        status = INTERRUPTED
    except BrokenPipeError:
        sys.stdout = None
        status = 0
    except OSError as error:
        if error.errno not in FULL:
            raise
        print(f"error: cannot write {error.filename or 'the output'}: {error.strerror}", file=sys.stderr)
        sys.stdout = None  # Otherwise Python retries the buffered output at exit.
        status = 1
    except ImportError as error:
        print(f"error: {missing(error)}", file=sys.stderr)
        status = 1
    leave(status)


def own_input() -> int:
    """Return a new descriptor of standard input, and let descriptor 0 be the null device.

    On Windows a thread that reads a pipe blocks all others that ask for the state of that pipe. Libraries do
    so with the standard handles when they are loaded, and child processes when they start (numpy#24290). So
    only the caller has the pipe.
    """
    nowhere = os.open(os.devnull, os.O_RDONLY)  # Descriptor 0 if standard input is closed.
    mine = os.dup(0)
    os.dup2(nowhere, 0)
    if nowhere:
        os.close(nowhere)
    return mine


def leave(status: int) -> NoReturn:
    """End the process.

    If daemon threads are running, skip the interpreter's shutdown. A thread in native code, for example one
    that opens a network, would return into the shutdown, which aborts the process with "terminate called
    without an active exception".
    """
    if all(not thread.daemon for thread in threading.enumerate()):
        sys.exit(status)
    import logging

    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
    os._exit(status)


def run_interruptible(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine, which Ctrl-C, SIGTERM and SIGHUP cancel. An ignored SIGHUP (nohup) stays ignored.

    Raises KeyboardInterrupt if it was cancelled and returned no result, and at the second Ctrl-C.
    """
    import asyncio

    async def run() -> T:
        task = asyncio.current_task()
        assert task is not None
        with contextlib.suppress(NotImplementedError):  # On Windows, which does not send these signals.
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGTERM, task.cancel)
            if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
                loop.add_signal_handler(signal.SIGHUP, task.cancel)
        return await work

    try:
        return asyncio.run(run())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def ending_signals() -> list[int]:
    """Return the numbers of the system's signals of Ctrl-C, `kill` and a closed terminal."""
    names = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
    return [getattr(signal, name) for name in names if hasattr(signal, name)]


@contextlib.contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise KeyboardInterrupt, as Ctrl-C does. Ignored ones (nohup) stay ignored."""

    def interrupt(number: int, frame: object) -> NoReturn:
        raise KeyboardInterrupt

    numbers = [number for number in ending_signals() if signal.getsignal(number) == signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def group_of_its_own() -> dict[str, Any]:
    """Return arguments of subprocess.Popen for a child that does not receive the terminal's Ctrl-C."""
    if sys.platform == "win32":
        import subprocess

        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW}
    return {"process_group": 0}


def kill_group(process_id: int) -> None:
    """End a child's process group: an engine behind a shell script would outlive the script.
    Raises ProcessLookupError if there is none."""
    if sys.platform == "win32":
        os.kill(process_id, signal.SIGTERM)  # This terminates immediately on Windows.
    else:
        os.killpg(process_id, signal.SIGKILL)


CRASH_SIGNALS = ("SIGABRT", "SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE")
"""Signals that end a process after a fault of the program or a driver."""

CRASHES_VARIABLE = "WAVEFRONT_CRASHES"
"""Environment variable with the folder for crash records, if the cache folder is not writable."""


def crash_signal(status: int) -> str | None:
    """Return the name of the signal of a crash that ended a process; None if it ended otherwise.

    status: as in `subprocess`.
    """
    return next((name for name in CRASH_SIGNALS if getattr(signal, name, None) == -status), None)


def child_command(program: str, *arguments: str) -> list[str]:
    """Return the command line of a child process that runs one of our programs.

    program: as in `wavefront_launcher.start`. The launcher is given by its path, so neither the working
    directory nor PYTHONPATH affects which one runs.
    """
    from pathlib import Path

    launcher = Path(__file__).resolve().parents[2] / "wavefront_launcher.py"
    # Variables that this process ignores might break the child, such as a PYTHONHOME of another Python.
    flags = ["-E", "-P"] if sys.flags.ignore_environment else ["-P"]
    return [sys.executable, *flags, str(launcher), program, *arguments]


def how_it_ended(status: int) -> str:
    """Return how a process ended, as the predicate of a sentence.

    status: as in `subprocess`; the negative signal number if a signal ended it.
    """
    if status >= 0:
        return f"ended with exit code {status}"
    with contextlib.suppress(ValueError):
        return f"was ended by {signal.Signals(-status).name}"
    return f"was ended by signal {-status}"
