"""Files that another process sees whole or not at all."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from functools import partial
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
