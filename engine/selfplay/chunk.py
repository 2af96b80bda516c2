# SPDX-License-Identifier: GPL-3.0-or-later
"""Chunk files: the gzipped records of one game. Writes are atomic; files are untrusted input."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path

import numpy as np

from engine.selfplay.training_record import RECORD_BYTES, RECORD_DTYPE, Records
from protocol.host.files import write_atomically

MAX_RECORDS = 20_000
"""No game has more plies (5,899 moves for each side, by the 50-move rule)."""


class TrainingDataError(ValueError):
    """A chunk file is unusable. The message gives the reason, but not the file."""


def write_chunk(path: Path, records: Records) -> None:
    """Write a game's records durably; a reader sees the whole file or none. Raises OSError."""
    file = io.BytesIO()
    # No time and no name, so that equal games give equal bytes.
    with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as stream:
        stream.write(np.ascontiguousarray(records).tobytes())
    write_atomically(path, file.getvalue(), durable=True)


def read_chunk(path: Path) -> Records:
    """Return the records of a chunk file. Only their size is checked. Raises TrainingDataError and
    OSError."""
    limit = MAX_RECORDS * RECORD_BYTES
    try:
        with gzip.open(path, "rb") as stream:
            data = stream.read(limit + 1)
    except (gzip.BadGzipFile, zlib.error) as error:
        raise TrainingDataError(f"damaged, or not gzip: {error}") from None
    except EOFError:
        raise TrainingDataError("truncated: the gzip stream does not end") from None
    if len(data) > limit:
        raise TrainingDataError(f"more than {MAX_RECORDS:,} records: no game is that long")
    if not data:
        raise TrainingDataError("no records")
    if len(data) % RECORD_BYTES:
        raise TrainingDataError(
            f"{len(data):,} bytes are not a whole number of records of {RECORD_BYTES:,} bytes (version 6)"
        )
    return np.frombuffer(data, RECORD_DTYPE)
