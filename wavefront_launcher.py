# SPDX-License-Identifier: GPL-3.0-or-later
"""Starts the programs, and all their child processes, with the packages next to this file.

    python -P -m wavefront_launcher NAME [ARGUMENT …]

Users choose the same package names: a module `engine` in a folder of PYTHONPATH must not replace ours. So
this module binds the four names and leaves sys.path unchanged. Children of multiprocessing import their
parent's main module, so importing this module binds the names.
It is imported before `uciok`, so it must not import anything heavy.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from os.path import dirname, realpath
from types import ModuleType
from typing import NoReturn

PACKAGES = frozenset({"engine", "evaluator", "protocol", "training"})

_FOLDER = dirname(realpath(__file__))  # noqa: PTH120 - importing pathlib takes longer than everything here


class _NextToThis:
    """Finds the four packages before sys.path is searched."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [_FOLDER]) if name in PACKAGES else None


sys.meta_path.insert(0, _NextToThis)


def start(program: str) -> NoReturn:
    """Run a program with the arguments in sys.argv and end the process with its exit status.

    program: one of the packages, for its command line, or a module with a function `main`.
    """
    module, function = (f"{program}.cli", "console") if program in PACKAGES else (program, "main")
    try:
        run = getattr(import_module(module), function)
    except ImportError as error:  # The core is missing or outdated; the message has the remedy.
        sys.exit(f"{program}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(run())


def wavefront() -> NoReturn:
    """Start the UCI engine or one of its tools."""
    start("engine")


def wavefront_evaluator() -> NoReturn:
    """Start the evaluator or one of its tools."""
    start("evaluator")


def wavefront_training() -> NoReturn:
    """Start a command of training."""
    start("training")


if __name__ == "__main__":
    del sys.argv[0]
    start(sys.argv[0])
