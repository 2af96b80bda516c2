# SPDX-License-Identifier: GPL-3.0-or-later
"""Starts the programs, and all processes that they start, with the packages that lie next to this file.

    python -P -m wavefront_launcher NAME [ARGUMENT …]

The packages have names that users choose, too: a module `engine` in a folder of PYTHONPATH must not replace
ours. So this module binds the four names, and leaves sys.path alone. The processes that multiprocessing
starts import their parent's main module, hence the names are bound wherever this is imported.
It is imported before `uciok`: nothing heavy here.
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

_FOLDER = dirname(realpath(__file__))  # noqa: PTH120 - pathlib takes longer to import than all of this


class _NextToThis:
    """Finds the four packages, before sys.path is searched."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [_FOLDER]) if name in PACKAGES else None


sys.meta_path.insert(0, _NextToThis)


def start(program: str) -> NoReturn:
    """Run a program with the arguments in sys.argv, and end the process with its exit status.

    program: one of the packages, for its command line, or a module with a function `main`.
    """
    module, function = (f"{program}.cli", "console") if program in PACKAGES else (program, "main")
    try:
        run = getattr(import_module(module), function)
    except ImportError as error:  # No native core, or one of other sources: the message says what to do.
        sys.exit(f"{program}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(run())


def wavefront() -> NoReturn:
    """The UCI engine and its tools."""
    start("engine")


def wavefront_evaluator() -> NoReturn:
    """The evaluator and its tools."""
    start("evaluator")


def wavefront_training() -> NoReturn:
    """The commands of training."""
    start("training")


if __name__ == "__main__":
    del sys.argv[0]
    start(sys.argv[0])
