# SPDX-License-Identifier: GPL-3.0-or-later
"""Atomically written files, and files that grow by complete entries."""

from __future__ import annotations

import errno
import os
import stat
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from io import FileIO
from pathlib import Path, PureWindowsPath

UNFINISHED = ".part"
"""Suffix of a file that is being written."""


def write_atomically(
    path: Path, data: bytes, *, durable: bool = False, mode: int | None = None, replace: bool = True
) -> None:
    """Write a temporary file in the same folder and rename it to `path`.

    A reader sees the old content or the new one, never a part. A failed write leaves nothing behind. Missing
    folders are created.
    durable: file and name are on the disk on return, so they survive a power failure.
    mode: permissions from creation on, if the system supports them; None uses the umask.
    replace: if False, an existing file raises FileExistsError. Raises OSError.
    """
    check_name(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Several processes and threads may write the same file, so each uses its own name.
    unfinished = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}{UNFINISHED}")
    try:
        with open(unfinished, "wb", opener=partial(_open, mode)) as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        if replace:
            replace_file(unfinished, path)
        elif os.name == "posix":
            path.hardlink_to(unfinished)
            unfinished.unlink()
        else:
            unfinished.rename(path)  # does not replace on Windows
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise
    if durable and os.name == "posix":  # On Windows a folder cannot be synced.
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def check_name(path: Path, windows: bool = os.name == "nt") -> None:
    """Raise OSError for a name that Windows gives to a device, such as con.txt, or would change. NUL is
    allowed: it is the null device."""
    name = path.name.lower()
    if windows and name != "nul" and (PureWindowsPath(name).is_reserved() or name.endswith((".", " "))):
        raise OSError(errno.EINVAL, "Windows has no file of this name: choose another", str(path))


def replace_file(new: Path, path: Path) -> None:
    """Rename a file over another one. Raises OSError.

    On Windows a file that another program reads cannot be replaced: wait up to LOCK_SECONDS for its end.
    """
    end = time.perf_counter() + LOCK_SECONDS
    while True:
        try:
            new.replace(path)
            return
        except PermissionError:
            if os.name == "posix" or time.perf_counter() > end:
                raise
            time.sleep(0.02)


def _open(mode: int | None, path: str, flags: int) -> int:
    descriptor = os.open(path, flags, 0o666 if mode is None else mode)
    if mode is not None and hasattr(os, "fchmod"):
        os.fchmod(descriptor, mode)  # Independent of the umask, and for a file left by a crash.
    return descriptor


def open_to_append(path: Path) -> FileIO:
    """Open a file for `append_whole`, and create it and its folder if missing.
    Raises OSError, also for pipes and devices, which store nothing."""
    check_name(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)
    file = FileIO(os.open(path, flags, 0o666), "r+")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return file


def append_whole(file: FileIO, data: bytes, *, end: int) -> int:
    """Overwrite a file from offset `end` with `data`, sync it to the disk, and return its new end.

    If writing fails, the file is truncated to `end` and no buffer holds data for later. Raises OSError.
    """
    file.truncate(end)
    return replace_end(file, data, begin=end)


def replace_end(file: FileIO, data: bytes, *, begin: int) -> int:
    """Replace what a file holds from offset `begin` on, sync it to the disk, and return its new end.

    If writing fails, for example on a full disk, the old end is restored: it still has its space on the disk.
    Raises OSError.
    """
    file.seek(begin)
    before = file.readall()
    try:
        _write(file, data, begin)
        os.fsync(file.fileno())
    except BaseException:
        with suppress(OSError):
            _write(file, before, begin)
        raise
    return begin + len(data)


def _write(file: FileIO, data: bytes, begin: int) -> None:
    """Write data at an offset, without a moment at which the file is shorter, and end the file with it."""
    file.seek(begin)
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]
    file.truncate(begin + len(data))


LOCK_OFFSET = 1 << 40
"""Offset of the locked byte on Windows: beyond the content, because locks there prevent reading."""


LOCK_SECONDS = 1.0
"""Longest wait for a lock: a child of a killed process holds its files until it has begun its program."""


def lock(descriptor: int) -> bool:
    """Lock an open file until it is closed. Return False if another process keeps it.
    Raises OSError on file systems without locks."""
    end = time.perf_counter() + LOCK_SECONDS
    while not (locked := _locked(descriptor)) and time.perf_counter() < end:
        time.sleep(0.02)
    return locked


def _locked(descriptor: int) -> bool:
    """Lock an open file. Return False if another process has it."""
    if sys.platform == "win32":
        import msvcrt

        os.lseek(descriptor, LOCK_OFFSET, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)
        return True
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
