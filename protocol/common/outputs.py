# SPDX-License-Identifier: GPL-3.0-or-later
"""Protects users' files from the files that commands write."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from protocol.common.extras import install
from protocol.common.files import check_name
from protocol.common.folders import expanded
from protocol.common.printing import ReportedError, failing_as

if TYPE_CHECKING:
    from matplotlib.figure import Figure


OVERWRITE = {"--overwrite": "replace existing files that this program did not write"}
"""The flag of commands that write files, see `commands.declare`."""


class OutputError(ReportedError, ValueError):
    """Writing a file would destroy another one. The message names it and the remedy."""


class PlotError(ReportedError, RuntimeError):
    """A figure cannot be drawn. The message gives the reason and the remedy."""


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
        check_name(path)
        if path.is_dir():
            raise OutputError(f"{path} is a folder and cannot be written: name a file")
        if overwrite or not path.is_file() or not path.stat().st_size:
            return
        known = own is not None and own(path.read_bytes())
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror}") from None
    if not known:
        raise OutputError(
            f"{path} is there already, and not of this command: name another file, or add --overwrite"
        )


def guard_run(
    journal: Path,
    files: Iterable[Path],
    *,
    overwrite: bool = False,
    own: Callable[[bytes], bool] | None = None,
) -> None:
    """Raise OutputError if a new run would write to existing files. journal: whose existence shows that the
    files are a run's own."""
    if not journal.exists():
        for path in files:
            guard_output(path, overwrite=overwrite, own=own)


def guard_apart(outputs: Sequence[Path], reads: Iterable[str | os.PathLike[str]]) -> None:
    """Raise OutputError if an output is one of the files that are read, or another output."""
    reads = list(reads)
    for number, path in enumerate(outputs):
        guard_output(path, [*reads, *outputs[:number]], overwrite=True)


def named_files(data: Any) -> Iterator[Path]:
    """Yield the existing files that settings name. data: texts and paths in mappings and sequences."""
    if isinstance(data, Mapping):
        for value in data.values():
            yield from named_files(value)
    elif isinstance(data, (list, tuple)):
        for value in data:
            yield from named_files(value)
    elif isinstance(data, (str, Path)) and data:
        path = expanded(data)
        try:
            if path.is_file():
                yield path
        except (OSError, ValueError):  # A text that is no path.
            pass


FIGURE = "Wavefront plot"
"""Mark in the metadata of plots."""


def figure_of(width: float, height: float) -> Figure:
    """Return an empty figure of matplotlib, of this size in inches. Raises PlotError."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise PlotError(f"drawing needs matplotlib: {install('plot')}") from None
    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Figure, path: Path, **options: Any) -> None:
    """Write a figure in the format of the file's suffix, with a mark, so that the command may replace it.
    Raises PlotError."""
    names = {".png": "Software", ".svg": "Creator", ".pdf": "Creator", ".ps": "Creator", ".eps": "Creator"}
    name = names.get(path.suffix.lower())
    with failing_as(PlotError, f"cannot draw {path}", ValueError):
        figure.savefig(path, metadata={name: FIGURE} if name else None, **options)


def is_figure(content: bytes) -> bool:
    """Return True for the content of a file that `save_figure` wrote."""
    return FIGURE.encode() in content


def same_file(first: Path, second: Path) -> bool:
    """Return True for two names of one file: links, other spellings, files that do not exist yet."""
    try:
        return first.samefile(second)
    except OSError:
        return os.path.normcase(os.path.realpath(first)) == os.path.normcase(os.path.realpath(second))
