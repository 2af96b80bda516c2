# SPDX-License-Identifier: GPL-3.0-or-later
"""Cache files that shorten the next start. The evaluator also works without a cache folder."""

from __future__ import annotations

import logging
from pathlib import Path

from protocol.common.files import write_atomically
from protocol.common.folders import cache_folder

log = logging.getLogger(__name__)

_logged: set[Path | None] = set()
"""Unusable folders that were already logged."""


def cached_file(*parts: str) -> Path | None:
    """Return the path of a file in the user's cache folder, or None if the user has none, which is logged
    once."""
    folder = cache_folder()
    if folder is None:
        _log_once(None, "this user has no home folder")
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _log_once(folder, f"cannot make {folder}: {error.strerror}")
    return folder.joinpath(*parts)


def keep(path: Path | None, data: bytes) -> bool:
    """Write a cache file and return True on success. The first failure is logged."""
    if path is None:
        return False
    try:
        write_atomically(path, data)
    except OSError as error:
        folder = cache_folder()
        if folder is None or folder not in path.parents:
            folder = path.parent
        _log_once(folder, f"cannot write to {path.parent}: {error.strerror}")
        return False
    return True


def _log_once(folder: Path | None, reason: str) -> None:
    if folder not in _logged:
        _logged.add(folder)
        log.warning(
            "no cache: %s; each start compiles and measures again (XDG_CACHE_HOME names another folder)",
            reason,
        )
