# SPDX-License-Identifier: GPL-3.0-or-later
"""Chunk files: the gzipped records of one game."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import numpy as np

from engine.selfplay.training_record import Records
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
