"""Chunk files: the records of one game, gzipped. Writing is atomic; reading trusts nothing."""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path

import numpy as np

from engine.selfplay.training_record import RECORD_BYTES, RECORD_DTYPE, Records

UNFINISHED = ".part"
"""Ending of a file that is being written."""

MAX_RECORDS = 20_000
"""No game has more plies (5,899 moves for each side, by the 50-move rule)."""


class TrainingDataError(ValueError):
    """A chunk file that cannot be used. The message says what is wrong with it, not its name."""


def write_chunk(path: Path, records: Records) -> None:
    """Write a game's records; a reader sees the whole file or none. Raises OSError."""
    unfinished = path.with_name(path.name + UNFINISHED)
    with unfinished.open("wb") as file:
        # Neither time nor name: the same game gives the same bytes.
        with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as stream:
            stream.write(np.ascontiguousarray(records).tobytes())
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    if os.name == "posix":  # The new name too must be there after a power failure.
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def read_chunk(path: Path) -> Records:
    """The records of a chunk file, unchecked but for their size. Raises TrainingDataError and OSError."""
    limit = MAX_RECORDS * RECORD_BYTES
    try:
        with gzip.open(path, "rb") as stream:
            data = stream.read(limit + 1)
    except (gzip.BadGzipFile, zlib.error) as error:
        raise TrainingDataError(f"damaged, or not gzip: {error}") from None
    except EOFError:
        raise TrainingDataError("cut off: the gzip stream does not end") from None
    if len(data) > limit:
        raise TrainingDataError(f"more than {MAX_RECORDS:,} records: no game is that long")
    if not data:
        raise TrainingDataError("no records")
    if len(data) % RECORD_BYTES:
        raise TrainingDataError(
            f"{len(data):,} bytes are not a whole number of records of {RECORD_BYTES:,} bytes (version 6)"
        )
    return np.frombuffer(data, RECORD_DTYPE)
