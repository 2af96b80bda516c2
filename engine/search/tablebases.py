# SPDX-License-Identifier: GPL-3.0-or-later
"""Syzygy tables: the included ones of up to four men, and those of the option SyzygyPath.

All trees of a process with the same path share one set.
"""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from weakref import WeakValueDictionary

from engine._core import Tablebases
from protocol.common.folders import expanded

INCLUDED = Path(__file__).resolve().parents[1] / "tablebases"
"""Folder of the included tables."""

NONE = "<none>"
"""The value of SyzygyPath that disables tables."""

_opened: WeakValueDictionary[str, Tablebases] = WeakValueDictionary()
_lock = threading.Lock()


def folders_of(path: str) -> list[Path]:
    """Return the folders of a path, separated by the system's separator; if that is a colon, semicolons are
    accepted, too. `~` is the home folder."""
    separators = r"[:;]" if os.pathsep == ":" else re.escape(os.pathsep)
    parts = (part.strip() for part in re.split(separators, path))
    return [expanded(part) for part in parts if part]


def open_tablebases(path: str) -> Tablebases | None:
    """Return the tables in the folders of a path and the included ones; None for NONE."""
    if path.strip() == NONE:
        return None
    with _lock:
        tables = _opened.get(path)
        if tables is None:
            tables = _opened[path] = Tablebases([INCLUDED, *folders_of(path)])
        return tables


def description(path: str) -> list[str]:
    """Return what is in the folders of a path and their errors, one sentence each; nothing for NONE."""
    folders = [] if path.strip() == NONE else folders_of(path)
    if not folders:
        return []
    tables = Tablebases(folders)
    said = [f"SyzygyPath: cannot read the folder {folder}" for folder in tables.missing_folders]
    if tables.wdl_tables:
        kind = "table" if tables.wdl_tables == 1 else "tables"
        said.append(
            f"found {tables.wdl_tables} Syzygy {kind} of up to {tables.most_men} men, "
            f"{tables.dtz_tables or 'none'} with distances (.rtbz)"
        )
    elif len(tables.missing_folders) < len(folders):
        said.append(f"SyzygyPath: no tables in {path}: looked for files like KQvK.rtbw and KQvK.rtbz")
    return said
