# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that another process sees whole or not at all, and files that grow by whole entries."""

from __future__ import annotations

import errno
import os
import stat
import threading
from contextlib import suppress
from functools import partial
from io import FileIO
from pathlib import Path

UNFINISHED = ".part"
"""Ending of a file that is being written."""


def write_atomically(
    path: Path, data: bytes, *, durable: bool = False, mode: int | None = None, replace: bool = True
) -> None:
    """Write a file beside `path` and rename it to `path`, replacing what is there.

    A reader sees the old content or the new, never a part; nothing is left behind when writing fails. The
    folder is made if it is missing. durable: the file and its name are on the disk when this returns, so that
    they survive a power failure. mode: who may read and write it from the first moment on, where the system
    knows that; None leaves it to the umask. Without `replace` raises FileExistsError if there is a file.
    Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Several processes and threads may write the same file: each has a name of its own.
    unfinished = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}{UNFINISHED}")
    try:
        with open(unfinished, "wb", opener=partial(_open, mode)) as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        if replace:
            unfinished.replace(path)
        elif os.name == "posix":
            path.hardlink_to(unfinished)
            unfinished.unlink()
        else:
            unfinished.rename(path)  # which does not replace on Windows
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise
    if durable and os.name == "posix":  # On Windows a folder cannot be synchronised.
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _open(mode: int | None, path: str, flags: int) -> int:
    descriptor = os.open(path, flags, 0o666 if mode is None else mode)
    if mode is not None and hasattr(os, "fchmod"):
        os.fchmod(descriptor, mode)  # Whatever the umask, and a file that was left behind.
    return descriptor


def open_to_append(path: Path) -> FileIO:
    """A file for `append_whole`, made with its folder if it is missing. Raises OSError, also for what is no
    regular file: a pipe or a device keeps nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)
    file = FileIO(os.open(path, flags, 0o666), "r+")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return file


def append_whole(file: FileIO, data: bytes, *, end: int) -> int:
    """Write `data` at `end`, over whatever stands behind; when this returns it is on the disk.

    Returns where the file ends now. When writing fails, the file ends at `end`, and nothing is left in a
    buffer that would be written later. Raises OSError.
    """
    try:
        file.truncate(end)
        file.seek(end)
        left = memoryview(data)
        while left:
            left = left[file.write(left) :]
        os.fsync(file.fileno())
    except BaseException:
        with suppress(OSError):
            file.truncate(end)
        raise
    return end + len(data)
