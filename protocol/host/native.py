# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the compiled cores (`_core` of each package) for a checkout beside an installed package.

In a checkout `import engine` finds the source folder first. Its core lies in the installed package, in
site-packages (a plain `pip install .`) or behind an import hook (an editable install). The core is located,
not loaded: that is left to the modules that need it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Iterable, MutableSequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

DIGEST_FILE = "_core_digest.txt"
"""Written by CMake, installed beside the core."""


def source_digest(sources: Path) -> str:
    """The SHA-256, in hex, of the concatenated hex SHA-256 of the core's sources in order of their paths."""
    files = sorted((path for path in sources.rglob("*") if path.suffix in (".cc", ".h")), key=Path.as_posix)
    digests = "".join(hashlib.sha256(path.read_bytes()).hexdigest() for path in files)
    return hashlib.sha256(digests.encode("ascii")).hexdigest()


def installed_core(package: str, search_path: Iterable[str]) -> Path | None:
    """The file of the first compiled core of `package` in the folders of `search_path`."""
    for folder in search_path:
        for suffix in EXTENSION_SUFFIXES:
            candidate = Path(folder or ".", package, f"_core{suffix}")
            if candidate.is_file():
                return candidate
    return None


def check_core(core: Path, sources: Path) -> None:
    """Raise ImportError if the compiled core was built from other sources than those in the folder `sources`.

    An installed package brings no sources along, and there is nothing to compare.
    """
    if not sources.is_dir():
        return
    digest_file = core.with_name(DIGEST_FILE)
    built_from = digest_file.read_text("ascii").strip() if digest_file.is_file() else ""
    if built_from != source_digest(sources):
        raise ImportError(
            f"the compiled core {core} was built from other sources than {sources}: run 'pip install .' again"
        )


def locate_core(package: str, package_path: MutableSequence[str], folder: Path) -> None:
    """Make `package`._core importable; `package_path` is the package's __path__, `folder` its sources.

    Raises ImportError, saying what to do, if there is no compiled core or it does not fit the sources.
    """
    spec = importlib.util.find_spec(f"{package}._core")
    if spec is not None and spec.origin is not None:
        core: Path | None = Path(spec.origin)
    else:
        core = installed_core(package, sys.path)
        if core is not None:
            package_path.append(str(core.parent))
    if core is None:
        raise ImportError(
            f"the compiled core of {package!r} is missing: run 'pip install .' in {folder.parent}, with the "
            "Python that runs this"
        )
    check_core(core, folder / "core")
