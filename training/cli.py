# SPDX-License-Identifier: GPL-3.0-or-later
"""Command line of training. Each command is a module of `training/commands/`, imported on use."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from protocol.common import processes

COMMANDS = (
    "label",
    "import",
    "harvest",
    "annotate",
    "stats",
    "init",
    "enlarge",
    "train",
    "export",
    "gate",
    "report",
    "run",
    "plot",
)
"""Modules of training.commands."""


def console() -> NoReturn:
    """Run the console script `wavefront-training`."""
    processes.console(main)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status: 0, 1 for a failure, 2 for wrong usage."""
    import argparse

    from protocol.common.commands import add_commands, parse
    from protocol.common.printing import ReportedError
    from protocol.common.settings.spec import SettingsError

    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(
        prog="wavefront-training",
        description="Make networks in lc0's format from games (docs/how-to/training.md).",
    )
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    add_commands(subparsers, "training.commands", COMMANDS, arguments[:1])
    parsed = parse(parser, subparsers, arguments)
    try:
        return int(parsed.run(parsed))
    except SettingsError as error:
        print(f"training {parsed.command}: {error}", file=sys.stderr)
        return 2
    except ReportedError as error:
        print(f"training {parsed.command}: {error}", file=sys.stderr)
        return 1
