# SPDX-License-Identifier: GPL-3.0-or-later
"""Where evaluators are found: the well-known addresses of this user's evaluator, on this machine.

Both sides use this file: the evaluator binds there by default, clients look there.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import zmq

DEFAULT_TCP = "tcp://127.0.0.1:5577"
"""Where an evaluator listens on every platform."""

# Bytes that a path may have (sockaddr_un), less the longest name we put below the folder.
_LONGEST_FOLDER = 60


def runtime_directory() -> Path:
    """This user's folder for sockets; made with mode 0700 if missing.

    XDG_RUNTIME_DIR/wavefront if that is usable (after `su` it is another user's), else a folder of the
    temporary directory. Raises OSError when it cannot be made or belongs to somebody else.
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
    """Make a folder that only this user may enter, if it is missing, and return it. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if hasattr(os, "getuid"):
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise PermissionError(f"{folder} must be a folder of your own with mode 0700; remove it")
    return folder


def default_addresses(without_ipc: Callable[[OSError], None] = lambda reason: None) -> list[str]:
    """The well-known addresses, best first: ipc where ZeroMQ has it, and tcp on loopback.

    Without a folder of our own there is tcp alone, and without_ipc gets the reason.
    """
    addresses = [DEFAULT_TCP]
    if zmq.has("ipc"):
        try:
            addresses.insert(0, f"ipc://{runtime_directory() / 'evaluator'}")
        except OSError as error:
            without_ipc(error)
    return addresses
