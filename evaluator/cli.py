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
    from protocol.common.commands import run_program

    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or (arguments[0].startswith("-") and not {"-h", "--help"} & set(arguments)):
        return main(["serve", *arguments])
    description = "Run lc0 networks for chess engines and scripts. Without a command: serve."
    commands = "evaluator.commands", COMMANDS
    return run_program("wavefront-evaluator", description, commands, arguments, name="error")
