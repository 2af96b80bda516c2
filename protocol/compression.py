# SPDX-License-Identifier: GPL-3.0-or-later
"""Compression of an evaluate's arrays: all three as one Zstandard frame.

Python has Zstandard from 3.14 on; before that the package backports.zstd is the same (extra `compression`).
Where there is neither nothing is offered or asked for.

Positions and moves shrink to a ninth or less. What was tried besides (planes of all positions side by side,
their bytes too, differences between the positions of a game, or between those of a batch) gains 8 % at best
and takes as long again as Zstandard itself. Answers are noise to it: they shrink by 9 %, and are sent as they
are.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any

from protocol.errors import BadRequest

ZSTD = "zstd"

LEVEL = 1

MAX_WINDOW_LOG = 23
"""A frame must not ask for more than 8 MiB of memory besides its content."""


@cache
def zstd() -> Any:
    """The module, None where there is none. Not before it is needed: engines mostly do without."""
    for name in ("compression.zstd", "backports.zstd"):
        with suppress(ImportError):
            return import_module(name)
    return None


def offered() -> tuple[str, ...]:
    """What this side can read and write, for a welcome."""
    return () if zstd() is None else (ZSTD,)


class Compressor:
    """Compresses for one connection, one thread at a time. There must be a `zstd`."""

    def __init__(self) -> None:
        self._module = zstd()
        self._compressor = self._module.ZstdCompressor(level=LEVEL)

    def compressed(self, arrays: Sequence[Any]) -> bytes:
        """One frame with the bytes of these arrays, one after the other. It says how long they are."""
        whole: bytes = self._compressor.compress(b"".join(arrays), self._module.ZstdCompressor.FLUSH_FRAME)
        return whole


def content_size(frame: bytes) -> int:
    """How many bytes a frame says that its content has. Raises BadRequest for what is no frame that says so,
    and where nothing can be decompressed."""
    module = zstd()
    if module is None:
        raise BadRequest("compression: this evaluator did not offer zstd, and cannot read it")
    try:
        info = module.get_frame_info(frame)
    except module.ZstdError:
        raise BadRequest("compression: frame 1 is no frame of Zstandard") from None
    if info.decompressed_size is None:
        raise BadRequest("compression: the frame must say how long its content is")
    if info.dictionary_id:
        raise BadRequest("compression: the frame asks for a dictionary, and there is none")
    return int(info.decompressed_size)


def content(frame: bytes, size: int) -> bytes:
    """The content of a frame, which must be `size` bytes as `content_size` said. Raises BadRequest: for a
    frame that is cut short or damaged, lies about its size, or is followed by something else."""
    module = zstd()
    options = {module.DecompressionParameter.window_log_max: MAX_WINDOW_LOG}
    decompressor = module.ZstdDecompressor(options=options)
    try:
        whole: bytes = decompressor.decompress(frame, size)
        # What ends a frame without content of its own may be left.
        if not decompressor.eof and len(whole) == size:
            whole += decompressor.decompress(b"", 1)
    except module.ZstdError as error:
        raise BadRequest(f"compression: {str(error)[:200]}") from None
    if not decompressor.eof or len(whole) != size or decompressor.unused_data:
        raise BadRequest(
            f"compression: the frame does not have the {size} bytes that it says, or more follows"
        )
    return whole
