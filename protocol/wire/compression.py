# SPDX-License-Identifier: GPL-3.0-or-later
"""Compression of an evaluate's arrays: all three as one Zstandard frame.

Python includes Zstandard since 3.14; the package backports.zstd (extra `compression`) is the same for older
versions. With neither, compression is neither offered nor requested.

Positions and moves shrink to a ninth or less. Other layouts gain 8 % at best and take as long again as
Zstandard itself: planes of all positions side by side, their bytes too, differences between positions of a
game or of a batch. Answers shrink by 9 % only, so they are sent uncompressed.
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
"""Maximum window: a frame may need at most 8 MiB of memory in addition to its content."""


@cache
def zstd() -> Any:
    """Return the Zstandard module or None. Imported on first use, because most engines never need it."""
    for name in ("compression.zstd", "backports.zstd"):
        with suppress(ImportError):
            return import_module(name)
    return None


def offered() -> tuple[str, ...]:
    """Return the compressions that this side supports, for a welcome."""
    return () if zstd() is None else (ZSTD,)


class Compressor:
    """Compressor of one connection, for one thread at a time. Requires that `zstd()` is not None."""

    def __init__(self) -> None:
        self._module = zstd()
        self._compressor = self._module.ZstdCompressor(level=LEVEL)

    def compressed(self, arrays: Sequence[Any]) -> bytes:
        """Return one frame with the concatenated bytes of these arrays. It declares its content size."""
        whole: bytes = self._compressor.compress(b"".join(arrays), self._module.ZstdCompressor.FLUSH_FRAME)
        return whole


def content_size(frame: bytes) -> int:
    """Return the declared content size of a frame in bytes.
    Raises BadRequest for an invalid frame, one without a size, and if Zstandard is not available."""
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
    """Return the content of a frame. size: as `content_size` returned it.
    Raises BadRequest for a frame that is truncated, damaged, of another size, or followed by more bytes."""
    module = zstd()
    options = {module.DecompressionParameter.window_log_max: MAX_WINDOW_LOG}
    decompressor = module.ZstdDecompressor(options=options)
    try:
        whole: bytes = decompressor.decompress(frame, size)
        # The end marker of a frame with empty content may remain.
        if not decompressor.eof and len(whole) == size:
            whole += decompressor.decompress(b"", 1)
    except module.ZstdError as error:
        raise BadRequest(f"compression: {str(error)[:200]}") from None
    if not decompressor.eof or len(whole) != size or decompressor.unused_data:
        raise BadRequest(
            f"compression: the frame does not have the {size} bytes that it says, or more follows"
        )
    return whole
