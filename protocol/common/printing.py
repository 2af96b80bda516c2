# SPDX-License-Identifier: GPL-3.0-or-later
"""Text for terminals, logs and files: untrusted text, messages of errors."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class ReportedError(Exception):
    """A command cannot do what it was asked to. The message gives cause and remedy: commands print it."""


def printable(text: str) -> str:
    """Return the text with "?" for unprintable characters: one line, no control of a terminal."""
    return "".join(character if character.isprintable() else "?" for character in text)


def say(program: str, text: str) -> None:
    """Print a message of a program to standard error. Its lines cannot control the terminal. Work goes on if
    nobody can read it: standard error may be a file on a full disk."""
    lines = "\n".join(map(printable, text.split("\n")))
    with suppress(OSError):
        print(f"{program}: {lines}", file=sys.stderr, flush=True)


def reason(error: Exception) -> str:
    """Return the message of an error, without the number and file of an operating-system error. Errors that
    nobody thought of have the name of their type."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    expected = isinstance(error, ReportedError | OSError | ValueError) and str(error)
    return str(error) if expected else f"{type(error).__name__}: {error}"


@contextmanager
def failing_as(kind: type[Exception], what: str, *also: type[Exception]) -> Iterator[None]:
    """Context manager that raises `kind`, with what failed and why, for an OSError or one of `also`."""
    kinds: tuple[type[Exception], ...] = (OSError, *also)
    try:
        yield
    except kinds as error:
        raise kind(f"{what}: {reason(error)}") from None
