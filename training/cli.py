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
    from protocol.common.commands import run_program

    description = "Make networks in lc0's format from games (docs/how-to/training.md)."
    words, commands = list(sys.argv[1:] if argv is None else argv), ("training.commands", COMMANDS)
    return run_program("wavefront-training", description, commands, words, name="training {}")
