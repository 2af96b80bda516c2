# SPDX-License-Identifier: GPL-3.0-or-later
"""Syzygy tables by the option SyzygyPath: one set in a process for all trees that name the same folders."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from weakref import WeakValueDictionary

from engine._core import Tablebases
from protocol.host.folders import expanded

_opened: WeakValueDictionary[str, Tablebases] = WeakValueDictionary()
_lock = threading.Lock()


def folders_of(path: str) -> list[Path]:
    """The folders that a path names, between the system's separator; where that is a colon, a semicolon will
    do as well. `~` is the home folder."""
    separators = r"[:;]" if os.pathsep == ":" else re.escape(os.pathsep)
    parts = (part.strip() for part in re.split(separators, path))
    return [expanded(part) for part in parts if part]


def open_tablebases(path: str) -> Tablebases | None:
    """The tables in the folders of a path, which may be none; None for an empty path."""
    folders = folders_of(path)
    if not folders:
        return None
    with _lock:
        tables = _opened.get(path)
        if tables is None:
            tables = _opened[path] = Tablebases(folders)
        return tables


def description(path: str, tables: Tablebases) -> list[str]:
    """What was found in the folders of a path, and what is wrong with it, one sentence each."""
    said = [f"SyzygyPath: cannot read the folder {folder}" for folder in tables.missing_folders]
    if tables.wdl_tables:
        kind = "table" if tables.wdl_tables == 1 else "tables"
        said.append(
            f"found {tables.wdl_tables} Syzygy {kind} of up to {tables.most_men} men, "
            f"{tables.dtz_tables or 'none'} with distances (.rtbz)"
        )
    elif len(tables.missing_folders) < len(folders_of(path)):
        said.append(f"SyzygyPath: no tables in {path}: looked for files like KQvK.rtbw and KQvK.rtbz")
    return said
