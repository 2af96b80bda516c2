# SPDX-License-Identifier: GPL-3.0-or-later
"""The engine and evaluator that a benchmark measures: this checkout, or another interpreter's packages.

A benchmark that measures through command lines and UCI gets an Installation and measures any commit with the
same program. One that imports the packages measures this checkout, since `python -m benchmarks.…` looks for
them in the folder where it is started; the compiled cores are the installed ones.
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
    """How the commands of one engine and evaluator are called.

    name: what tables call it. engine, evaluator, python: the beginnings of its commands; python has its
    packages. folder: where its commands run. variables: set in their environment, in place of the caller's.
    """

    name: str
    engine: Sequence[str]
    evaluator: Sequence[str]
    python: Sequence[str]
    folder: Path
    variables: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def environment(self, **variables: str) -> dict[str, str]:
        """The environment of its commands. variables: some more for this call."""
        return {**own_variables(), **self.variables, **variables}

    def output_of(self, command: Sequence[str], given: str | None = None) -> str:
        """What one of its commands prints; raises CommandError."""
        return output_of(command, folder=self.folder, environment=self.environment(), given=given)

    def json_of(self, command: Sequence[str]) -> Any:
        """The JSON that one of its commands prints; raises CommandError, also for what is no JSON."""
        printed = self.output_of(command)
        try:
            return json.loads(printed)
        except ValueError:
            raise CommandError(f"{' '.join(command)}\nprinted no JSON:\n{printed[:1000]}") from None


def own_variables() -> dict[str, str]:
    """This process's environment without what would lead an interpreter to other packages than its own."""
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
    """Run a module of `benchmarks` in a process of its own; streams are text. words: of its command line."""
    command = [sys.executable, "-m", f"benchmarks.{name}", *words]
    environment = CHECKOUT.environment()
    return subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=stderr, text=True, env=environment)
