# SPDX-License-Identifier: GPL-3.0-or-later
"""Locates the compiled cores (`_core` of each package) if a checkout and an installed package exist.

In a checkout `import engine` finds the source folder first. Its core lies in the installed package: in
site-packages (plain `pip install .`) or behind an import hook (editable install). This module only locates
the core; the modules that need it load it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Iterable, MutableSequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

DIGEST_FILE = "_core_digest.txt"
"""Written by CMake and installed next to the core."""


def source_digest(sources: Path) -> str:
    """Return the hex SHA-256 of the concatenated hex SHA-256 of the core's sources, ordered by path."""
    files = sorted((path for path in sources.rglob("*") if path.suffix in (".cc", ".h")), key=Path.as_posix)
    digests = "".join(hashlib.sha256(path.read_bytes()).hexdigest() for path in files)
    return hashlib.sha256(digests.encode("ascii")).hexdigest()


def installed_core(package: str, search_path: Iterable[str]) -> Path | None:
    """Return the file of the first compiled core of `package` in `search_path`, or None."""
    for folder in search_path:
        for suffix in EXTENSION_SUFFIXES:
            candidate = Path(folder or ".", package, f"_core{suffix}")
            if candidate.is_file():
                return candidate
    return None


def check_core(core: Path, sources: Path) -> None:
    """Raise ImportError if the core was built from other sources than those in the folder `sources`.

    An installed package has no sources; there is nothing to compare then.
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

    Raises ImportError with the remedy if there is no compiled core or it does not match the sources.
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
