"""The user's folders and names. In a container a process may have no home, and its user no name."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def cache_folder() -> Path | None:
    """Return the folder for what later starts can do without. It may not exist. None if the user has none."""
    import platformdirs

    with contextlib.suppress(OSError, RuntimeError, KeyError):
        return _absolute(platformdirs.user_cache_dir("wavefront", False))
    return None


def config_folder() -> Path | None:
    """Return the folder for what the user configures. It may not exist. None if the user has none."""
    import platformdirs

    with contextlib.suppress(OSError, RuntimeError, KeyError):
        return _absolute(platformdirs.user_config_dir("wavefront", False))
    return None


def expanded(path: str | os.PathLike[str]) -> Path:
    """Return a path with the home folder for `~`. Without a home it stays as it is."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - Path.expanduser raises without a home


def user_names() -> set[str]:
    """Return the names of this process's user, as far as the system knows any."""
    import getpass

    names = {expanded("~").name}
    with contextlib.suppress(OSError, KeyError, ImportError):
        names.add(getpass.getuser())
    return names - {"", "~"}


def _absolute(folder: str) -> Path | None:
    path = Path(folder)
    return path if path.is_absolute() else None
