# SPDX-License-Identifier: GPL-3.0-or-later
"""Text of PGN, EPD and FEN files in the encodings that programs write, also compressed by gzip."""

from __future__ import annotations

import codecs
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

STANDARD_INPUT = Path("-")

LARGEST = 1 << 30
"""Maximum bytes of an unpacked file."""

_ARCHIVES = {
    b"PK\x03\x04": "zip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"7z\xbc\xaf": "7z",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"Rar!": "rar",
}
"""First bytes of compressed files that need unpacking."""

_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
"""Encoding by byte order mark. The mark of UTF-32 begins with that of UTF-16, so it comes first."""


class TextError(ValueError):
    """A file is no text. The message names the file and the remedy."""


def read_text(path: Path, note: Callable[[str], None] = lambda text: None) -> str:
    """Return the text of a file, or of standard input for "-", with \\n at the ends of lines.

    note: called with the file and its encoding if that is not UTF-8. Raises OSError and TextError.
    """
    name = "standard input" if path == STANDARD_INPUT else str(path)
    data = sys.stdin.buffer.read() if path == STANDARD_INPUT else path.read_bytes()
    if data.startswith(b"\x1f\x8b"):
        data = _unpacked(data, name)
    archive = next((kind for start, kind in _ARCHIVES.items() if data.startswith(start)), None)
    if archive:
        raise TextError(f"{name} is compressed ({archive}): unpack it, or compress it with gzip")
    text, encoding = _decoded(data)
    if "\0" in text:
        raise TextError(f"{name} is no text: unpack it, or save it as UTF-8")
    if encoding != "utf-8":
        note(f"{name} is not UTF-8, and is read as {encoding}")
    # Joined files have the mark of each one.
    return text.replace("\ufeff", "").replace("\r\n", "\n").replace("\r", "\n")


def _unpacked(data: bytes, name: str) -> bytes:
    unpacker = zlib.decompressobj(wbits=31)
    parts, size = [], 0
    try:
        while data:
            part = unpacker.decompress(data, LARGEST + 1 - size)
            parts.append(part)
            size += len(part)
            if size > LARGEST:
                raise TextError(f"{name} unpacks to more than {LARGEST >> 20} MiB: split it")
            if not unpacker.eof:
                raise TextError(f"{name} is truncated: copy it again")
            data = unpacker.unused_data.lstrip(b"\0")
            unpacker = zlib.decompressobj(wbits=31)
    except zlib.error as error:
        raise TextError(f"{name} is damaged: {error}") from None
    return b"".join(parts)


def _decoded(data: bytes) -> tuple[str, str]:
    """Return the text and the encoding. Bytes that are not UTF-8 are those of Windows-1252."""
    for mark, encoding in _MARKS.items():
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, "western"), encoding
    start = data[:4096]
    if b"\0" in start:  # UTF-16 without a mark: one half of the bytes of Western text is 0.
        for first, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):
            if start[first::2].count(0) > len(start) // 4 and not start[1 - first :: 2].count(0):
                return data.decode(encoding, "replace"), encoding
    try:
        return data.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        return data.decode("utf-8", "western"), "Windows-1252"


def _western(error: UnicodeError) -> tuple[str, int]:
    """Decode invalid bytes as Windows-1252, and those that it does not define as Latin-1."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    if error.encoding != "utf-8":
        return "\ufffd", error.end
    parts = (bytes([byte]) for byte in error.object[error.start : error.end])
    return "".join(part.decode("cp1252", "ignore") or part.decode("latin-1") for part in parts), error.end


codecs.register_error("western", _western)
