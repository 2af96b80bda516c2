# SPDX-License-Identifier: GPL-3.0-or-later
"""Decompression of gzip files with a limit that is checked before memory is used.

Real weights hardly compress, so a file that grows far beyond its size is damaged or a bomb. zlib needs 2.5 s
for the 360 MB of a BT4 network on one core. With the package `rapidgzip`, large files are unpacked on all
cores (0.4 s on 16). If it fails, zlib unpacks the file, and its error counts. So there is one set of rules
and messages.
"""

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from evaluator.network.errors import NetworkError

log = logging.getLogger(__name__)

PARALLEL_BYTES = 8 << 20
"""Smaller files are left to zlib, which needs 0.05 s for this size."""

_PARALLEL_GROWTH = 4
"""Maximum growth for rapidgzip. zlib unpacks files with more, and never holds more than a piece of a bomb."""

_MOST_THREADS = 16
"""Each thread holds a few pieces of some MB; more threads are no faster."""

_CHUNK = 1 << 20


def unpack(file: BinaryIO, limit: int) -> bytes | memoryview:
    """Return the contents of a gzip file with one or more members. file: on disk, at its start. Raises
    NetworkError for more than `limit` bytes."""
    size = os.fstat(file.fileno()).st_size
    raw = unpack_on_all_cores(file, size, limit) if size >= PARALLEL_BYTES else None
    if raw is not None:
        return raw
    file.seek(0)
    try:
        parts: list[bytes] = []
        total = 0
        for part in _inflate(file):
            total += len(part)
            if total > limit:
                raise NetworkError(
                    f"the file unpacks to more than {limit} bytes, far more than its size of {size} allows; "
                    "it is damaged or made to exhaust memory"
                )
            parts.append(part)
        return b"".join(parts)
    except zlib.error as error:
        raise NetworkError(f"the gzip data is damaged ({error}); download the file again") from None


def unpack_on_all_cores(file: BinaryIO, size: int, limit: int) -> memoryview | None:
    """Unpack with rapidgzip, which checks the CRC. Returns None if it is missing or fails, or if the file is
    not a single member that ends with a plausible length."""
    try:
        import rapidgzip
    except ImportError:
        return None
    file.seek(-4, os.SEEK_END)
    expected = int.from_bytes(file.read(4), "little")
    if not 0 < expected <= min(limit, _PARALLEL_GROWTH * size):
        return None
    raw = np.empty(expected + 1, np.uint8).data  # one byte more, to detect a longer file
    count, threads = 0, min(_MOST_THREADS, os.cpu_count() or 1)
    try:
        with rapidgzip.RapidgzipFile(file.fileno(), parallelization=threads) as unpacked:
            while part := unpacked.readinto(raw[count:]):
                count += part
    except Exception as error:  # converted from C++ exceptions; zlib will report the fault
        log.debug("rapidgzip: %s", error)
        return None
    return raw[:expected] if count == expected else None


def _inflate(file: BinaryIO) -> Iterator[bytes]:
    """Yield pieces of at most _CHUNK bytes, so that the caller can stop before memory is used.

    The input is passed in pieces, too: zlib returns a copy of the unconsumed rest of each.
    """
    tail = file.read(_CHUNK)
    while tail:
        member = zlib.decompressobj(wbits=31)
        while not member.eof:
            if not tail:
                tail = file.read(_CHUNK)
                if not tail:
                    raise NetworkError(
                        "the gzip data ends too early; the file is truncated, download it again"
                    )
            part = member.decompress(tail, _CHUNK)
            tail = member.unconsumed_tail
            if part:
                yield part
        tail = member.unused_data or file.read(_CHUNK)
        if tail[:1] == b"\0" and not (tail + file.read()).strip(b"\0"):
            return  # zero padding after the last member is allowed
