# SPDX-License-Identifier: GPL-3.0-or-later
"""Test modules import at their top what `.[test]` installs on each system, and nothing else."""

import ast
import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.paths import REPOSITORY

pytestmark = pytest.mark.integration

POSIX_ONLY = {
    *("crypt", "curses", "fcntl", "grp", "pty", "pwd"),
    *("readline", "resource", "syslog", "termios", "tty"),
}
"""Modules of the standard library that Windows lacks."""

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]


def is_loaded(path: Path) -> bool:
    """Return whether pytest loads a file by itself."""
    return path.name.startswith("test_") or path.name == "conftest.py"


def module_file(name: str) -> Path | None:
    """Return the file of a module of this repository."""
    path = REPOSITORY / Path(*name.split("."))
    candidates = (path.with_suffix(".py"), path / "__init__.py")
    return next((each for each in candidates if each.is_file()), None)


def loaded(statements: list[ast.stmt]) -> Iterator[str]:
    """Yield the modules that statements import when they run, up to a call of importorskip or skip."""
    for statement in statements:
        match statement:
            case ast.Import():
                yield from (each.name for each in statement.names)
            case ast.ImportFrom(module=str(module)):
                yield module
                yield from (f"{module}.{each.name}" for each in statement.names)
            case ast.Expr(value=ast.Call()) | ast.Assign(value=ast.Call()) | ast.AnnAssign(value=ast.Call()):
                if "pytest.importorskip" in ast.unparse(statement):
                    return
            case ast.If():
                if "TYPE_CHECKING" not in ast.unparse(statement.test):
                    yield from loaded(statement.orelse)


def normalised(distribution: str) -> str:
    return re.sub("[-_.]+", "-", distribution).lower()


def installed_everywhere() -> set[str]:
    """Return the modules from outside that every system has after `pip install '.[test]'`."""
    required = [each.partition(";") for each in (*PROJECT["dependencies"], *EXTRAS["test"])]
    names = {normalised(re.split(r"[^\w.-]", each)[0]) for each, _, marker in required if "sys" not in marker}
    owners = importlib.metadata.packages_distributions()
    found = {module for module, of in owners.items() if names & set(map(normalised, of))}
    return found | (set(sys.stdlib_module_names) - POSIX_ONLY)


def test_test_modules_load_with_the_packages_of_the_extra_test_alone() -> None:
    allowed = installed_everywhere()
    waiting = [(path, path.name) for path in (REPOSITORY / "tests").rglob("*.py") if is_loaded(path)]
    seen = {path for path, _ in waiting}
    missing = []
    while waiting:
        path, way = waiting.pop()
        for name in loaded(ast.parse(path.read_text("utf-8")).body):
            package = name.partition(".")[0]
            if (REPOSITORY / package).exists() or (REPOSITORY / f"{package}.py").exists():
                file = module_file(name)
                if file is not None and file not in seen:
                    seen.add(file)
                    waiting.append((file, f"{way} imports {name}"))
            elif package not in allowed:
                missing.append(f"{way} imports {name}")
    assert not missing
