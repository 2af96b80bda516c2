# SPDX-License-Identifier: GPL-3.0-or-later
"""The user's folders and names. In a container a process may have no home folder or user name."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def cache_folder() -> Path | None:
    """Return the cache folder, which may not exist. None if the user has none."""
    return _of_user("user_cache_dir")


def config_folder() -> Path | None:
    """Return the configuration folder, which may not exist. None if the user has none."""
    return _of_user("user_config_dir")


def data_folder() -> Path | None:
    """Return the folder of what the user makes, which may not exist. None if the user has none."""
    return _of_user("user_data_dir")


def expanded(path: str | os.PathLike[str]) -> Path:
    """Return a path with `~` expanded. Without a home folder it is unchanged."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - Path.expanduser raises without a home


def user_names() -> set[str]:
    """Return the known names of this process's user."""
    import getpass

    names = {expanded("~").name}
    with contextlib.suppress(OSError, KeyError, ImportError):
        names.add(getpass.getuser())
    return names - {"", "~"}


def _of_user(kind: str) -> Path | None:
    import platformdirs

    with contextlib.suppress(OSError, RuntimeError, KeyError):
        path = Path(getattr(platformdirs, kind)("wavefront", False))
        return path if path.is_absolute() else None
    return None
