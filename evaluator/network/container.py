"""From a file on disk to a parsed `Net` message: gzip, size limits, magic, version.

Nothing here trusts the file. Decompression is streamed and bounded before memory is used: a network of real
weights hardly compresses, so a file that wants to grow far beyond its own size is a bomb or damaged.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError

from evaluator.network.errors import NetworkError
from evaluator.network.schema import MAGIC, Message, WeightsEncoding, new_message

READER_VERSION = (0, 33, 0)
"""The newest lc0 whose networks this loader understands."""

_ANY_READER = (97, 98, 99)  # a version that lc0 accepts whatever its own

MAX_BYTES = 2**31 - 1
"""protobuf cannot hold more."""

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Most bytes of a network after decompression: `base + ratio * file size`, and never above `maximum`."""

    base: int = 64 << 20
    ratio: int = 24
    maximum: int = MAX_BYTES

    def of(self, file_bytes: int) -> int:
        return min(self.maximum, self.base + self.ratio * file_bytes)


def read_container(path: Path, limits: Limits | None = None) -> tuple[Message, str, int]:
    """The `Net` message of a file, the SHA-256 of the file in hexadecimal, and its size in bytes.

    Raises NetworkError for everything that can be wrong with a file as a whole.
    """
    limits = limits or Limits()
    data = _read(path, limits.maximum)
    with ThreadPoolExecutor(1) as beside:  # neither holds the interpreter's lock
        digest = beside.submit(hashlib.sha256, data)
        raw = decompress(data, limits.of(len(data))) if data[:2] == b"\x1f\x8b" else data
    net = new_message("Net")
    try:
        net.ParseFromString(raw)
    except (DecodeError, RecursionError, ValueError):
        raise NetworkError(_not_a_network(data)) from None
    if not net.HasField("magic"):
        raise NetworkError(_not_a_network(data))
    if net.magic != MAGIC:
        raise NetworkError(
            f"magic: {net.magic:#x}, expected {MAGIC:#x}; this is not an lc0 network, or it is damaged"
        )
    _check_version(net)
    return net, digest.result().hexdigest(), len(data)


def _read(path: Path, maximum: int) -> bytes:
    try:
        if path.is_dir():
            raise NetworkError("this is a folder; give the network file inside it")
        size = path.stat().st_size
        if size > maximum:
            raise NetworkError(f"the file has {size} bytes; no lc0 network is larger than {maximum}")
        data = path.read_bytes()
    except FileNotFoundError:
        raise NetworkError("there is no such file; check the path") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise NetworkError(f"the file cannot be read: {reason}") from None
    if not data:
        raise NetworkError("the file is empty; download it again")
    return data


def decompress(data: bytes, limit: int) -> bytes:
    """The contents of a gzip file of one or more members, at most limit bytes, else NetworkError."""
    try:
        parts: list[bytes] = []
        total = 0
        for part in _inflate(data):
            total += len(part)
            if total > limit:
                raise NetworkError(
                    f"the file unpacks to more than {limit} bytes, far more than its size of "
                    f"{len(data)} allows; "
                    "it is damaged or made to exhaust memory"
                )
            parts.append(part)
        return b"".join(parts)
    except zlib.error as error:
        raise NetworkError(f"the gzip data is damaged ({error}); download the file again") from None


def _inflate(data: bytes) -> Iterator[bytes]:
    """Pieces of at most _CHUNK bytes, so that the caller can stop before memory is used.

    The input goes in in pieces, too: zlib hands back a copy of what it has not consumed of each.
    """
    view = memoryview(data)
    position = 0
    while position < len(data):
        member = zlib.decompressobj(wbits=31)
        tail: bytes | memoryview = b""
        while not member.eof:
            if not tail:
                tail = view[position : position + _CHUNK]
                position += len(tail)
                if not tail:
                    raise NetworkError(
                        "the gzip data ends too early; the file is truncated, download it again"
                    )
            part = member.decompress(tail, _CHUNK)
            tail = member.unconsumed_tail
            if part:
                yield part
        position -= len(member.unused_data)
        if data[position : position + 1] == b"\0" and not data[position:].strip(b"\0"):
            return  # tape-style padding is allowed after the last member


def _not_a_network(data: bytes) -> str:
    if data[:2] == b"PK":
        return "this is a zip archive; unpack the network file inside it"
    if data[:6] == b"\xfd7zXZ\0":
        return "this is an xz archive; unpack the network file inside it"
    head = data[:64].lstrip()
    if head[:1] == b"<":
        return "this is a web page, not a network; the download went wrong"
    if head[:2] in (b"1\n", b"2\n", b"1\r", b"2\r"):
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
