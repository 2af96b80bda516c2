# SPDX-License-Identifier: GPL-3.0-or-later
"""Shared flags, exit codes and error handling of the commands that build and measure."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from benchmarks.common.command_line import FAILED, INTERRUPTED, count, positive
from benchmarks.common.processes import CommandError
from benchmarks.revisions.environments import BuildError
from benchmarks.revisions.revisions import RevisionError
from benchmarks.revisions.suite import SUITE, UnknownFigureError
from benchmarks.revisions.turns import Failure


def add_measuring_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags about figures, rounds and environments."""
    names = ", ".join(quantity.name for benchmark in SUITE for quantity in benchmark.quantities)
    parser.add_argument(
        "--figures", default="", metavar="A,B,…", help=f"some of {names} (default: all of them)"
    )
    parser.add_argument("--rounds", type=count, default=5, metavar="N", help="default 5")
    parser.add_argument(
        "--seconds", type=positive, default=3.0, help="of a measurement that can choose (default 3)"
    )
    parser.add_argument("--rebuild", action="store_true", help="do not use what was built before")
    parser.add_argument(
        "--environments", type=Path, metavar="FOLDER", help="where is built (default: in the user's cache)"
    )


def figure_names(arguments: argparse.Namespace) -> list[str]:
    return [name.strip() for name in arguments.figures.split(",") if name.strip()]


def guarded(name: str, run: Callable[[], int]) -> int:
    """Run a command and return its exit code. Errors become messages; Ctrl-C and SIGTERM end its children."""

    def terminated(*_: object) -> NoReturn:
        raise SystemExit(128 + signal.SIGTERM)

    previous = signal.signal(signal.SIGTERM, terminated)
    try:
        return run()
    except (BuildError, CommandError, RevisionError, UnknownFigureError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, previous)


def show_failures(failures: Sequence[Failure]) -> None:
    """Print each failure and the command's message on stderr."""
    for failure in failures:
        print(
            f"\n{', '.join(failure.figures)}: not measured, since it failed for {failure.installation}, "
            f"which may not have what is measured:\n{failure.message}",
            file=sys.stderr,
        )
