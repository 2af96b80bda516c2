# SPDX-License-Identifier: GPL-3.0-or-later
"""The folder of keys, and the permissions of its files.

evaluator.key   key pair of a service          client.key   key pair of this user's clients
clients         allowed clients of a service   evaluators   public keys of services, by address
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from protocol.common.files import write_atomically
from protocol.common.folders import config_folder, expanded
from protocol.common.keys.notation import KeysError

SERVICE_PAIR, CLIENT_PAIR = "evaluator.key", "client.key"
CLIENTS, SERVICES = "clients", "evaluators"

MOST_BYTES = 16 << 20
"""Longest file: some 200,000 clients."""


def keys_folder(wanted: str | Path = "") -> Path:
    """Return the folder of keys: `wanted`, or else the user's configuration folder.

    Raises KeysError if the user has none.
    """
    if wanted:
        return expanded(wanted)
    folder = config_folder()
    if folder is None:
        raise KeysError(
            "this user has no home folder for keys; --keys, of an engine EvaluatorKeys, names a folder"
        )
    return folder


def read_private(path: Path) -> str:
    """Return the text of a file that only its owner may read: this user or root. Raises KeysError,
    FileNotFoundError."""
    return _read(path, stat.S_IRWXG | stat.S_IRWXO, "others may read it: chmod 600")


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file that only its owner (this user or root) may change, with comments; none if
    there is no file. Raises KeysError."""
    try:
        return _read(path, stat.S_IWGRP | stat.S_IWOTH, "others may change it: chmod go-w").splitlines()
    except FileNotFoundError:
        return []


def write_lines(path: Path, lines: Sequence[str], heading: str) -> None:
    """Replace a file that only its owner may change. Raises KeysError.
    heading: added as first line, unless that is a comment already."""
    if not (lines and lines[0].startswith("#")):
        lines = [f"# {heading}", *lines]
    with _as_keys_error(path, "cannot write"):
        _make_folder(path.parent)
        write_atomically(path, "".join(f"{line}\n" for line in lines).encode(), durable=True, mode=0o644)


def write_private(path: Path, text: str, *, replace: bool) -> None:
    """Create a file that only its owner may read. Raises KeysError.
    replace: overwrite an existing file; otherwise raises FileExistsError."""
    with _as_keys_error(path, "cannot write", *([] if replace else [FileExistsError])):
        _make_folder(path.parent)
        write_atomically(path, text.encode(), durable=True, mode=0o600, replace=replace)


def _make_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _read(path: Path, forbidden: int, complaint: str) -> str:
    """Return the text of a file. Refuse it before reading if others may do what is forbidden (mode bits), or
    could replace it."""
    with (
        _as_keys_error(path, "cannot read", FileNotFoundError),
        open(path, "rb", opener=_open_at_once) as file,
    ):
        status = os.fstat(file.fileno())  # of the open file; the path may have changed since
        if not stat.S_ISREG(status.st_mode):
            raise KeysError(f"{path}: it is no file")
        if os.name == "posix":
            if status.st_mode & forbidden:
                raise KeysError(f"{path}: {complaint} {path}")
            _check_owner(path, status)
            _check_folder(path.absolute().parent)
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise KeysError(f"{path}: it is longer than {MOST_BYTES >> 20} MiB")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise KeysError(f"{path}: it is not text") from None


def _check_owner(path: Path, status: os.stat_result) -> None:
    if status.st_uid not in (0, os.geteuid()):
        raise KeysError(f"{path}: user {status.st_uid} owns it: chown {os.geteuid()} {path}")


def _check_folder(folder: Path) -> None:
    """Raise KeysError if another user may rename or replace files in a folder."""
    status = folder.stat()
    _check_owner(folder, status)
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not status.st_mode & stat.S_ISVTX:
        raise KeysError(f"{folder}: others may change it: chmod go-w {folder}")


def _open_at_once(path: str, flags: int) -> int:
    """Open without blocking: a pipe would block the service until somebody writes to it."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


@contextlib.contextmanager
def _as_keys_error(path: Path, what: str, *but: type[OSError]) -> Iterator[None]:
    """Turn an OSError into a KeysError. but: types to pass on."""
    try:
        yield
    except but:
        raise
    except OSError as error:
        named = path.name in (SERVICE_PAIR, CLIENT_PAIR, CLIENTS, SERVICES)
        remedy = "; --keys, of an engine EvaluatorKeys, names another folder" if named else ""
        raise KeysError(f"{what} {path}: {error.strerror}{remedy}") from None
