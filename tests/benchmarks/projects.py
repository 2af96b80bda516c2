"""A project of one file in a git repository, which installs in a moment, and figures that it prints."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.common.installation import Installation
from benchmarks.revisions.suite import Benchmark, Quantity, Values

SPEED = Quantity("speed", "nodes/s", higher_is_better=True)
START = Quantity("start", "ms to uciok", higher_is_better=False)

PROGRAM = """\
import json
print(json.dumps({"speed": %s, "start": %s}))
"""

INSTALL = """\
import pathlib, sys
python, source, built = map(pathlib.Path, sys.argv[1:])
print("installing", source)
program = source.joinpath("wavefront.py").read_text()
if "compile error" in program:
    sys.exit("wavefront.py:1: error: it does not compile")
script = python.with_name("wavefront")
script.write_text(f"#!{python}\\n{program}")
script.chmod(0o755)
with built.open("a") as log:
    log.write("built\\n")
"""


class Project:
    """A repository whose commits each have a program that prints its speed and the time of its start."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "project"
        self.folder.mkdir()
        self._built = folder / "built"
        self.git("init", "--quiet")

    def git(self, *arguments: str) -> str:
        identity = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.org"]
        command = ["git", *identity, *arguments]
        done = subprocess.run(command, cwd=self.folder, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def write(self, program: str, name: str = "wavefront.py") -> None:
        (self.folder / name).write_text(program)

    def commit(self, subject: str, program: str) -> str:
        """Returns the commit's hash."""
        self.write(program)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", subject)
        return self.git("rev-parse", "HEAD")

    def install(self, python: Path, source: Path) -> list[str]:
        """In place of pip: copies the program, or fails for one with the words `compile error`."""
        return [sys.executable, "-c", INSTALL, str(python), str(source), str(self._built)]

    @property
    def builds(self) -> int:
        """How many times an installation came to its end."""
        return len(self._built.read_text().splitlines()) if self._built.exists() else 0


def program(*, speed: float, start: float = 50) -> str:
    return PROGRAM % (speed, start)


def printed(*names: str) -> Callable[[Installation, float], Values]:
    """Measures by running the program and taking what it prints."""

    def measure(installation: Installation, seconds: float) -> Values:
        told = installation.json_of(installation.engine)
        return {name: told[name] for name in names}

    return measure


SUITE = (Benchmark((SPEED,), printed("speed")), Benchmark((START,), printed("start")))


def no_warm_up(installation: Installation) -> None:
    """The programs have no caches."""
