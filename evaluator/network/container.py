# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads a file into a parsed `Net` message: gzip, size limits, magic, version.

The file is untrusted; unpack.py limits its decompressed size.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from evaluator.network.errors import NetworkError
from evaluator.network.schema import MAGIC, Message, WeightsEncoding, new_message
from evaluator.network.unpack import unpack

READER_VERSION = (0, 33, 0)
"""The newest lc0 version whose networks this loader supports."""

_ANY_READER = (97, 98, 99)  # a minimum version that every lc0 accepts

MAX_BYTES = 1 << 30
"""Maximum size of a network, of which the parser needs as much again."""

MAX_FIELDS = 100_000
"""Maximum fields of all messages together; networks of 60 blocks have some 6,000. An empty message takes two
bytes of the file, and some hundred of the parser's."""

_DIGEST_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class SizeLimit:
    """Limit of a network's bytes after decompression: `base + ratio * file size`, and at most `maximum`."""

    base: int = 64 << 20
    ratio: int = 24
    maximum: int = MAX_BYTES

    def of(self, file_bytes: int) -> int:
        return min(self.maximum, self.base + self.ratio * file_bytes)


def read_container(path: Path, limits: SizeLimit | None = None) -> tuple[Message, Future[str], int]:
    """Return the `Net` message of a file, the file's SHA-256 in hexadecimal, and its size in bytes.

    The hash is computed concurrently. Raises NetworkError for any fault of the file as a whole; so does the
    future.
    """
    limits = limits or SizeLimit()
    try:
        size = _size(path, limits.maximum)
        beside = ThreadPoolExecutor(1, "digest")
        digest = beside.submit(_digest, path)
        beside.shutdown(wait=False)
        with path.open("rb") as file:
            head = file.read(64)
            file.seek(0)
            raw = unpack(file, limits.of(size)) if head[:2] == b"\x1f\x8b" else file.read()
    except (OSError, ValueError) as error:
        raise _unreadable(error) from None
    net = new_message("Net")
    try:
        _check_fields(memoryview(raw), net.DESCRIPTOR)
        net.ParseFromString(raw)
    except (DecodeError, RecursionError, ValueError, IndexError):
        raise NetworkError(_not_a_network(head)) from None
    if not net.HasField("magic"):
        raise NetworkError(_not_a_network(head))
    if net.magic != MAGIC:
        raise NetworkError(
            f"magic: {net.magic:#x}, expected {MAGIC:#x}; this is not an lc0 network, or it is damaged"
        )
    _check_version(net)
    return net, digest, size


def _check_fields(raw: memoryview, kind: Any) -> None:
    """Raise NetworkError if a serialised message has more fields than a network has, and ValueError or
    IndexError if it is none. kind: its descriptor. Counted without parsing, because a parser allocates memory
    for each field."""
    fields = 0
    parts = [(0, len(raw), kind)]
    while parts:
        at, end, kind = parts.pop()
        while at < end:
            fields += 1
            if fields > MAX_FIELDS:
                raise NetworkError(f"more than {MAX_FIELDS:,} fields: this is not an lc0 network")
            tag, at = _varint(raw, at)
            wire = tag & 7
            if wire == 0:
                _, at = _varint(raw, at)
            elif wire in (1, 5):
                at += 8 if wire == 1 else 4
            elif wire == 2:
                size, at = _varint(raw, at)
                field = kind.fields_by_number.get(tag >> 3)
                if field is not None and field.message_type is not None:
                    parts.append((at, at + size, field.message_type))
                at += size
            else:
                raise ValueError("a group")
        if at != end or end > len(raw):
            raise ValueError("truncated")


def _varint(raw: memoryview, at: int) -> tuple[int, int]:
    """Return a variable-length integer and the offset behind it."""
    value = raw[at]
    if value < 128:
        return value, at + 1
    value &= 127
    for shift in range(7, 70, 7):
        at += 1
        byte = raw[at]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at + 1
    raise ValueError("a long integer")


def _size(path: Path, maximum: int) -> int:
    if path.is_dir():
        raise NetworkError("this is a folder; give the network file inside it")
    size = path.stat().st_size
    if size > maximum:
        raise NetworkError(f"the file has {size} bytes; no lc0 network is larger than {maximum}")
    if not size:
        raise NetworkError("the file is empty; download it again")
    return size


def _digest(path: Path) -> str:
    """Return the hash of the file, read in pieces large enough to be worth releasing the GIL."""
    digest, piece = hashlib.sha256(), memoryview(bytearray(_DIGEST_BYTES))
    try:
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(piece):
                digest.update(piece[:count])
    except OSError as error:
        raise _unreadable(error) from None
    return digest.hexdigest()


def _unreadable(error: Exception) -> NetworkError:
    if isinstance(error, FileNotFoundError):
        return NetworkError("there is no such file; check the path")
    return NetworkError(f"the file cannot be read: {getattr(error, 'strerror', None) or error}")


def _not_a_network(head: bytes) -> str:
    if head[:2] == b"PK":
        return "this is a zip archive; unpack the network file inside it"
    if head[:6] == b"\xfd7zXZ\0":
        return "this is an xz archive; unpack the network file inside it"
    text = head.lstrip()
    if text[:1] == b"<":
        return "this is a web page, not a network; the download went wrong"
    if text[:2] in (b"1\n", b"2\n", b"1\r", b"2\r"):
        return "this is a text network of 2018 (.txt); only protobuf networks (.pb, .pb.gz) are supported"
    return "this is not an lc0 network, or it is truncated or damaged; download it again"


def _check_version(net: Message) -> None:
    version = (net.min_version.major, net.min_version.minor, net.min_version.patch)
    number = _version_number(version)
    if version != _ANY_READER and number > _version_number(READER_VERSION):
        raise NetworkError(
            f"min_version: the network needs lc0 {_dotted(version)}; "
            f"this program understands networks up to {_dotted(READER_VERSION)}"
        )
    encoding = net.format.weights_encoding
    if (
        net.HasField("weights")
        and encoding != WeightsEncoding.LINEAR16
        and number < _version_number((0, 33, 0))
    ):
        raise NetworkError(
            f"format.weights_encoding: {encoding or 'absent'}, which needs min_version 0.33.0 or later, "
            f"but min_version is {_dotted(version)}"
        )


def _version_number(version: tuple[int, int, int]) -> int:
    return version[0] * 10**6 + version[1] * 10**3 + version[2]


def _dotted(version: tuple[int, int, int]) -> str:
    return ".".join(map(str, version))
