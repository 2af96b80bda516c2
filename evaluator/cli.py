"""The command line of the evaluator: a command is one of `evaluator/commands/`, imported when it is used."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from protocol.host import processes

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
    "kernels",
    "report",
    "describe",
    "export",
    "random-network",
    "simulate",
)
"""Modules of evaluator.commands."""


def console() -> NoReturn:
    """The console script."""
    processes.console(main)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the process's exit status."""
    import argparse

    from protocol.host.commands import add_commands

    arguments = list(sys.argv[1:] if argv is None else argv)
    chosen = next((argument for argument in arguments if not argument.startswith("-")), "")
    parser = argparse.ArgumentParser(
        prog="wavefront-evaluator",
        description="Runs lc0 networks for chess engines and scripts. Without a command: serve.",
    )
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND")
    if not chosen and not {"-h", "--help"} & set(arguments):
        return main(["serve", *arguments])
    add_commands(subparsers, "evaluator.commands", COMMANDS, [chosen])
    parsed = parser.parse_args(arguments)
    return int(parsed.run(parsed))
