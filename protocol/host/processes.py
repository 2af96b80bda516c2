# SPDX-License-Identifier: GPL-3.0-or-later
"""How programs of several threads run and end, and how they start others that a terminal's Ctrl-C is not for.

A UCI engine imports this before it answers: what takes long to import is imported where it is used.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn, TypeVar

from protocol.host.extras import missing

T = TypeVar("T")

INTERRUPTED = 130
"""Exit status after a Ctrl-C, as shells have it: 128 and the number of the signal."""

FULL = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}
"""What the system says where a disk, or a user's share of it, is full."""


def console(main: Callable[[], int]) -> NoReturn:
    """A console script: run `main` and end the process with the exit status that it returns.

    The status is INTERRUPTED for a Ctrl-C, whenever it comes, and 0 when the reader of the output has left
    (`… | head`): it has seen enough, which is no failure. A full disk and a package that is not installed are
    reported in a line, with status 1.
    """
    try:
        status = main()
        if sys.stdout is not None:
            sys.stdout.flush()  # Here, where the reader's leaving is understood, and not at exit.
    except KeyboardInterrupt:
        status = INTERRUPTED
    except BrokenPipeError:
        sys.stdout = None
        status = 0
    except OSError as error:
        if error.errno not in FULL:
            raise
        print(f"error: cannot write {error.filename or 'the output'}: {error.strerror}", file=sys.stderr)
        sys.stdout = None  # What may be left in it would be tried again at exit.
        status = 1
    except ImportError as error:
        print(f"error: {missing(error)}", file=sys.stderr)
        status = 1
    leave(status)


def leave(status: int) -> NoReturn:
    """End the process.

    Threads that are still in native code, such as one that opens a network, would return into an interpreter
    that is shutting down, which ends them by force, and the process with "terminate called without an active
    exception". Where there may be such threads the process is left without shutting down.
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
    """Run a coroutine to its end, which Ctrl-C, SIGTERM and the closing of the terminal bring about in order:
    they cancel it. A hangup that is ignored, as under nohup, stays so.

    Raises KeyboardInterrupt if it was cancelled and returned nothing of its own, and at the second Ctrl-C.
    """
    import asyncio
    import signal

    async def run() -> T:
        task = asyncio.current_task()
        assert task is not None
        with contextlib.suppress(NotImplementedError):  # On Windows nobody sends these signals.
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGTERM, task.cancel)
            if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
                loop.add_signal_handler(signal.SIGHUP, task.cancel)
        return await work

    try:
        return asyncio.run(run())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def group_of_its_own() -> dict[str, Any]:
    """Arguments of subprocess.Popen for a process that its parent ends: a terminal sends Ctrl-C to the parent
    alone."""
    if sys.platform == "win32":
        import subprocess

        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW}
    return {"process_group": 0}


def kill_group(process_id: int) -> None:
    """End a process of a group of its own, and what it has started: an engine behind a shell script goes on
    without the script. Raises ProcessLookupError if there is none."""
    import signal

    if sys.platform == "win32":
        os.kill(process_id, signal.SIGTERM)  # Which ends it at once there.
    else:
        os.killpg(process_id, signal.SIGKILL)


CRASH_SIGNALS = ("SIGABRT", "SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE")
"""What a fault of the program itself, or of a driver, ends a process with."""

CRASHES_VARIABLE = "WAVEFRONT_CRASHES"
"""Names the folder for records of crashes, for a program that cannot write its cache folder."""


def crash_signal(status: int) -> str | None:
    """Return the name of the signal of a crash that ended a process; None if it ended otherwise.

    status: as of `subprocess`.
    """
    import signal

    with contextlib.suppress(ValueError):
        name = signal.Signals(-status).name
        return name if name in CRASH_SIGNALS else None
    return None


def child_command(program: str, *arguments: str) -> list[str]:
    """Return the command line of a child process that runs one of our programs.

    program: as `wavefront_launcher.start` takes it. The launcher is named by its path: neither the working
    directory nor PYTHONPATH decides which one runs.
    """
    from pathlib import Path

    launcher = Path(__file__).resolve().parents[2] / "wavefront_launcher.py"
    # What this process was told to ignore might stop the child: a PYTHONHOME of elsewhere.
    flags = ["-E", "-P"] if sys.flags.ignore_environment else ["-P"]
    return [sys.executable, *flags, str(launcher), program, *arguments]


def how_it_ended(status: int) -> str:
    """How a process ended, as the predicate of a sentence about it.

    status: as of `subprocess`, the number of the signal that ended it as a negative number.
    """
    import signal

    if status >= 0:
        return f"ended with exit code {status}"
    with contextlib.suppress(ValueError):
        return f"was ended by {signal.Signals(-status).name}"
    return f"was ended by signal {-status}"
