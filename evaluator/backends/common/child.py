# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a function in a child process, for drivers and libraries that may crash.

The function is part of an importable module; arguments and result are pickled. The child's standard output
and standard error are forwarded to standard error. Their last lines are kept for the error message.
"""

from __future__ import annotations

import collections
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import IO, Any, TypeVar

from protocol.common.processes import child_command, group_of_its_own, how_it_ended, own_input

T = TypeVar("T")

LAST_LINES = 20
"""Number of the child's last lines that are kept."""

_SHOWN = 3


class ChildEnded(Exception):  # noqa: N818 - named for what happened
    """A child process ended before it returned a result.

    status: exit status as in `subprocess`. lines: its last lines on standard error.
    """

    def __init__(self, status: int, lines: list[str]) -> None:
        self.status, self.lines = status, lines
        shown = "; ".join(line.strip() for line in lines if line.strip())
        super().__init__(f"the process {how_it_ended(status)}" + (f": {shown}" if shown else ""))


def run_in_child(function: Callable[..., T], *arguments: Any, echo: bool = True) -> T:
    """Call a function of a module in a child process, and return its result.

    echo: forward the child's output. Raises what the function raises, and ChildEnded if the process ends
    without a result.
    """
    child = subprocess.Popen(
        child_command("evaluator.backends.common.child"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **group_of_its_own(),
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    last: collections.deque[str] = collections.deque(maxlen=LAST_LINES)
    reader = threading.Thread(target=_pass_on, args=(child.stderr, last, echo), daemon=True)
    reader.start()
    try:
        try:
            child.stdin.write(pickle.dumps((function.__module__, function.__qualname__, arguments)))
            child.stdin.flush()
        except BrokenPipeError:
            pass
        answer = child.stdout.read()
        child.stdin.close()
        status = child.wait()
    except BaseException:
        child.kill()
        child.wait()
        raise
    reader.join(1)  # a grandchild may hold the pipe
    if not answer:
        raise ChildEnded(status, [*last][-_SHOWN:])
    result, error = pickle.loads(answer)
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


def _pass_on(stream: IO[bytes], last: collections.deque[str], echo: bool) -> None:
    for line in stream:
        text = line.decode(errors="replace").rstrip("\n")
        last.append(text)
        if echo and sys.stderr is not None:
            print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Call the function that standard input names, and write its result to standard output."""
    import importlib

    # Output of a library must not mix with the pickled answer.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    answer: tuple[Any, Exception | None]
    with os.fdopen(own_input(), "rb") as job:
        module, name, arguments = pickle.load(job)
    try:
        answer = (getattr(importlib.import_module(module), name)(*arguments), None)
    except Exception as error:
        answer = (None, error)
    answers.write(pickle.dumps(answer))
    answers.flush()
    sys.stderr.flush()
    os._exit(0)  # do not wait for a driver that does not return
