# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line of the evaluator: a command is one of `evaluator/commands/`, imported when it is used."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from protocol.common import processes

COMMANDS = (
    "serve",
    "status",
    "clients",
    "load",
    "unload",
    "reload",
    "alias",
    "drain",
    "keys",
    "bench",
    "devices",
    "verify",
    "tune",
    "report",
    "describe",
    "export",
    "random-network",
)
"""Modules of evaluator.commands."""


def console() -> NoReturn:
    """The console script."""
    from evaluator.backends.common.crashes import record_crashes

    record_crashes()
    processes.console(main)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the process's exit status."""
    import argparse

    from protocol.common.commands import add_commands, parse
    from protocol.common.printing import ReportedError

    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or (arguments[0].startswith("-") and not {"-h", "--help"} & set(arguments)):
        return main(["serve", *arguments])
    parser = argparse.ArgumentParser(
        prog="wavefront-evaluator",
        description="Run lc0 networks for chess engines and scripts. Without a command: serve.",
    )
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND")
    add_commands(subparsers, "evaluator.commands", COMMANDS, arguments[:1])
    parsed = parse(parser, subparsers, arguments)
    try:
        return int(parsed.run(parsed))
    except ReportedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
