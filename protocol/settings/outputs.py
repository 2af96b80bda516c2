# SPDX-License-Identifier: GPL-3.0-or-later
"""Protects users' files from the files that commands write."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from protocol.settings.spec import SettingsError


class OutputError(SettingsError):
    """Writing a file would destroy another one. The message names it and the remedy."""


def add_overwrite_flag(parser: argparse._ActionsContainer) -> None:
    """Add --overwrite."""
    parser.add_argument(
        "--overwrite", action="store_true", help="replace existing files that this program did not write"
    )


def guard_output(
    path: str | os.PathLike[str],
    reads: Iterable[str | os.PathLike[str]] = (),
    *,
    overwrite: bool = False,
    own: Callable[[bytes], bool] | None = None,
) -> None:
    """Raise OutputError if writing to `path` would destroy a file of the user.

    reads: files that the command reads, and its other outputs; never overwritten. overwrite: whether the user
    allows to replace another file. own: returns True for the content of a file that this command wrote and
    may replace. Devices, pipes and empty files may be written to.
    """
    path = Path(path)
    for read in map(Path, reads):
        if same_file(path, read):
            raise OutputError(f"{path} is also read, as {read}: name another file to write")
    try:
        if path.is_dir():
            raise OutputError(f"{path} is a folder: name a file to write")
        if overwrite or not path.is_file() or not path.stat().st_size:
            return
        known = own is not None and own(path.read_bytes())
    except OSError as error:
        raise OutputError(f"{path} exists and is unreadable: {error.strerror}") from None
    if not known:
        raise OutputError(
            f"{path} exists, and this command did not write it: name another file, or add --overwrite"
        )


def same_file(first: Path, second: Path) -> bool:
    """Return True for two names of one file: links, other spellings, files that do not exist yet."""
    try:
        return first.samefile(second)
    except OSError:
        return os.path.normcase(os.path.realpath(first)) == os.path.normcase(os.path.realpath(second))
