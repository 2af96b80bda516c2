# SPDX-License-Identifier: GPL-3.0-or-later
"""Default addresses of this user's evaluator on this machine: the evaluator binds them, clients try them."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import zmq

DEFAULT_TCP = "tcp://127.0.0.1:5577"
"""Default TCP address on every platform."""

# Limit of a socket path (sockaddr_un), minus the longest name below the folder.
_LONGEST_FOLDER = 60


def runtime_directory() -> Path:
    """Return this user's folder for sockets; created with mode 0700 if missing.

    XDG_RUNTIME_DIR/wavefront if usable (after `su` it is another user's), else below the temporary directory.
    Raises OSError if it cannot be created or belongs to another user.
    """
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    if base and len(os.fsencode(base)) <= _LONGEST_FOLDER:
        with contextlib.suppress(OSError):
            if Path(base).is_dir():
                return _own(Path(base) / "wavefront")
    owner = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    folder = Path(tempfile.gettempdir()) / f"wavefront-{owner}"
    if len(os.fsencode(folder)) > _LONGEST_FOLDER and os.name == "posix":
        folder = Path("/tmp") / f"wavefront-{owner}"
    return _own(folder)


def _own(folder: Path) -> Path:
    """Create a folder that only this user may enter, if it is missing, and return it. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if hasattr(os, "getuid"):
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise PermissionError(f"{folder} must be a folder of your own with mode 0700; remove it")
    return folder


def default_addresses(without_ipc: Callable[[OSError], None] = lambda reason: None) -> list[str]:
    """Return the default addresses, preferred first: ipc if ZeroMQ supports it, and tcp on loopback.

    without_ipc: called with the reason if there is no private folder; only tcp is returned then.
    """
    addresses = [DEFAULT_TCP]
    if zmq.has("ipc"):
        try:
            addresses.insert(0, f"ipc://{runtime_directory() / 'evaluator'}")
        except OSError as error:
            without_ipc(error)
    return addresses
