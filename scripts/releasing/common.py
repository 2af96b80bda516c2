# SPDX-License-Identifier: GPL-3.0-or-later
"""What the steps of a release share: folders, names, programs that must succeed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "release"
LOCK = ROOT / "deploy" / "requirements.lock"

PROGRAMS = ("wavefront", "wavefront-evaluator", "wavefront-training")
PAGES = ("LICENSE", "*.md", "docs", "deploy", "configs", "engine/apps/analysis/schema.json")
"""Git's patterns of an archive's pages, and of the files that these link."""

UNUSED = (
    "__pycache__",
    "libpython*.a",
    "pkgconfig",
    "include",
    "share",
    "config-*",
    "ensurepip",
    "idlelib",
    "lib2to3",
    "pydoc_data",
    "test",
    "tkinter",
    "turtledemo",
)
"""Parts of an installed Python that the archives leave out."""


def say(text: str) -> None:
    print(f"== {text}", flush=True)


def run(*command: str | Path, environment: dict[str, str] | None = None, folder: Path = ROOT) -> str:
    """Run a program that must succeed and return its standard output."""
    done = subprocess.run(
        [str(word) for word in command], env=environment, cwd=folder, stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        sys.exit(f"error: {' '.join(map(str, command))} ended with status {done.returncode}\n{done.stdout}")
    return done.stdout


def make_compilers(target: str | None = None) -> dict[str, str]:
    """Return an environment in which `cc` and `c++` compile for Linux, or for another target of Zig."""
    folder = CACHE / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("cc", "c++", "ar", "ranlib"):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(ROOT / "scripts" / "releasing" / "zig.sh")
    return {
        **os.environ,
        "RELEASE_PYTHON": sys.executable,
        "CC": str(folder / "cc"),
        "CXX": str(folder / "c++"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    } | ({"RELEASE_TARGET": target} if target else {"CXXFLAGS": "-include stdio.h"})
    # nanobind wants stdio.h; Python.h leaves it out of its stable part.
