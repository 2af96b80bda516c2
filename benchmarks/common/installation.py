# SPDX-License-Identifier: GPL-3.0-or-later
"""The engine and evaluator to measure: this checkout, or the packages of another interpreter.

A benchmark that uses command lines and UCI accepts an Installation, so one program measures any commit. A
benchmark that imports the packages measures this checkout, because `python -m benchmarks.…` searches the
current folder first; the compiled cores are the installed ones.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.common.processes import CommandError, output_of

REPOSITORY = Path(__file__).resolve().parents[2]
RUN_ENGINE = [sys.executable, str(REPOSITORY / "run_engine.py")]


@dataclass(frozen=True, slots=True)
class Installation:
    """Commands of one engine and evaluator.

    name: in tables. engine, evaluator, python: first words of its commands; python has its packages.
    folder: working directory of its commands. variables: override the caller's environment.
    """

    name: str
    engine: Sequence[str]
    evaluator: Sequence[str]
    python: Sequence[str]
    folder: Path
    variables: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def environment(self, **variables: str) -> dict[str, str]:
        """Return the environment of its commands. variables: further ones for this call."""
        return {**own_variables(), **self.variables, **variables}

    def output_of(self, command: Sequence[str], given: str | None = None) -> str:
        """Return the output of one of its commands. Raises CommandError."""
        return output_of(command, folder=self.folder, environment=self.environment(), given=given)

    def json_of(self, command: Sequence[str]) -> Any:
        """Return the JSON that one of its commands prints. Raises CommandError, also for invalid JSON."""
        printed = self.output_of(command)
        try:
            return json.loads(printed)
        except ValueError:
            raise CommandError(f"{' '.join(command)}\nprinted no JSON:\n{printed[:1000]}") from None


def own_variables() -> dict[str, str]:
    """Return this process's environment without variables that redirect an interpreter's imports."""
    return {name: value for name, value in os.environ.items() if name not in _LEADING_ELSEWHERE}


_LEADING_ELSEWHERE = ("PYTHONPATH", "PYTHONHOME")

CHECKOUT = Installation(
    name="this checkout",
    engine=RUN_ENGINE,
    evaluator=[sys.executable, "-m", "evaluator"],
    python=[sys.executable],
    folder=REPOSITORY,
    variables={"PYTHONPATH": str(REPOSITORY)},
)


def started_module(
    name: str, *words: str, stdin: int | None = None, stdout: int | None = None, stderr: int | None = None
) -> subprocess.Popen[str]:
    """Start a module of `benchmarks` in a child process with text streams. words: of its command line."""
    command = [sys.executable, "-m", f"benchmarks.{name}", *words]
    environment = CHECKOUT.environment()
    return subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=stderr, text=True, env=environment)
