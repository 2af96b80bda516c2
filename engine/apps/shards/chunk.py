# SPDX-License-Identifier: GPL-3.0-or-later
"""Chunk files: the gzipped records of one game."""

from __future__ import annotations

import gzip
import io

import numpy as np

from engine.apps.shards.training_record import Records

MAX_RECORDS = 20_000
"""No game has more plies (5,899 moves for each side, by the 50-move rule)."""


class TrainingDataError(ValueError):
    """A chunk file is unusable. The message gives the reason, but not the file."""


def chunk_bytes(records: Records) -> bytes:
    """Return the file of a game's records."""
    file = io.BytesIO()
    # No time and no name, so that equal games give equal bytes.
    with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as stream:
        stream.write(np.ascontiguousarray(records).tobytes())
    return file.getvalue()
