# SPDX-License-Identifier: GPL-3.0-or-later
"""Text of PGN, EPD and FEN files in the encodings that programs write, also compressed by gzip."""

from __future__ import annotations

import codecs
import re
import sys
import zlib
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from protocol.common.printing import ReportedError

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


_EASTERN = ("ąćęłńóśźż", "áčďéěíňóřšťúůýž", "áäčďéíĺľňóôŕšťúýž", "áéíóöőúüű", "äöüß", "ćčđšž", "ăâîşţ")
_CYRILLIC = (
    "абвгдежзийклмнопрстуфхцчшщъыьэюяё",
    "абвгдежзийклмнопрстуфхцчшщьюяєіїґ",
    "абвгдежзијклљмнњопрстћуфхцчџшђ",
)
_LETTERS = {
    "cp1252": (
        "äöüß",
        "àâæçéèêëîïôœùûü",
        "áéíóúñüïç",
        "áâãàçéêíóôõú",
        "åäöæøéü",
        "àèéìòóù",
        "áðéíóúýþæö",
        "äöõüšž",
    ),
    "cp1250": _EASTERN,
    "iso8859-2": _EASTERN,
    "cp1251": _CYRILLIC,
    "koi8-r": _CYRILLIC[:1],
    "cp1253": ("αβγδεζηθικλμνξοπρσςτυφχψωάέήίόύώϊϋΐΰ",),
    "cp1254": ("çğıöşüâi̇",),
}
"""Non-ASCII letters of languages, by the encoding of their files. Earlier ones are preferred."""

_WORDS = re.compile(rb"[A-Za-z]*[\x80-\xff][A-Za-z\x80-\xff]*")

MOST_WORDS = 5000
"""Maximum words that an encoding is guessed by."""


class TextError(ReportedError, ValueError):
    """A file is no text. The message names the file and the remedy."""


def read_text(path: Path, note: Callable[[str], None] = lambda text: None, encoding: str = "") -> str:
    """Return the text of a file, or of standard input for "-", with \\n at the ends of lines.

    note: called with the file and its encoding if that is guessed. encoding: of files that are not UTF-8;
    empty to guess it. Raises OSError and TextError.
    """
    try:
        "a".encode(encoding or "utf-8")
    except LookupError:
        raise TextError(f"--encoding: {encoding!a} is unknown: name one such as cp1251") from None
    name = "standard input" if path == STANDARD_INPUT else str(path)
    data = sys.stdin.buffer.read() if path == STANDARD_INPUT else path.read_bytes()
    return text_of(data, name, note, encoding)


def text_of(
    data: bytes, name: str, note: Callable[[str], None], encoding: str = "", most: int = LARGEST
) -> str:
    """Return the text of a file's bytes. most: maximum bytes once unpacked. Otherwise as `read_text`."""
    if data.startswith(b"\x1f\x8b"):
        data = _unpacked(data, name, most)
    archive = next((kind for start, kind in _ARCHIVES.items() if data.startswith(start)), None)
    if archive:
        raise TextError(f"{name} is compressed ({archive}): unpack it, or compress it with gzip")
    text, found = _decoded(data, encoding)
    if "\0" in text:
        raise TextError(f"{name} is no text: unpack it, or save it as UTF-8")
    if found not in ("utf-8", encoding):
        note(f"{name} is not UTF-8, and is read as {found}: if names look wrong, save it as UTF-8")
    # Joined files have the mark of each one.
    return text.replace("\ufeff", "").replace("\r\n", "\n").replace("\r", "\n")


def _unpacked(data: bytes, name: str, most: int) -> bytes:
    unpacker = zlib.decompressobj(wbits=31)
    parts, size = [], 0
    try:
        while data:
            part = unpacker.decompress(data, most + 1 - size)
            parts.append(part)
            size += len(part)
            if size > most:
                raise TextError(f"{name} unpacks to more than {most >> 20} MiB: split it")
            if not unpacker.eof:
                raise TextError(f"{name} is truncated: copy it again")
            data = unpacker.unused_data.lstrip(b"\0")
            unpacker = zlib.decompressobj(wbits=31)
    except zlib.error as error:
        raise TextError(f"{name} is damaged: {error}") from None
    return b"".join(parts)


def _decoded(data: bytes, encoding: str) -> tuple[str, str]:
    """Return the text and its encoding. Lines that are not UTF-8 have the given or the guessed one."""
    for mark, marked in _MARKS.items():
        if data.startswith(mark):
            return data[len(mark) :].decode(marked, "replace"), marked
    start = data[:4096]
    if b"\0" in start and not encoding:  # UTF-16 without a mark: one half of the bytes of Western text is 0.
        for first, wide in ((1, "utf-16-le"), (0, "utf-16-be")):
            if start[first::2].count(0) > len(start) // 4 and not start[1 - first :: 2].count(0):
                return data.decode(wide, "replace"), wide
    try:
        return data.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        encoding = encoding or _guessed(data)
    if codecs.lookup(encoding).name.startswith("utf-"):
        return data.decode(encoding, "replace"), encoding
    return "".join(_line(line, encoding) for line in data.splitlines(keepends=True)), encoding


def _line(line: bytes, encoding: str) -> str:
    """Return a line in UTF-8 or else the encoding. Bytes that this does not define are Latin-1."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return line.decode(encoding, "latin-1")


def _guessed(data: bytes) -> str:
    """Return the encoding in which most words have the letters of one language, and a usual case."""
    words = set(islice(_WORDS.findall(data), MOST_WORDS))

    def explained(encoding: str) -> tuple[int, int]:
        found = [word.decode(encoding, "replace") for word in words]
        usual = [word.lower() for word in found if word in (word.lower(), word.upper(), word.capitalize())]
        rows = [
            [not re.sub(f"[{'a-z' if each < 'Ͱ' else ''}{each}]", "", word) for word in usual]
            for each in _LETTERS[encoding]
        ]
        return sum(map(any, zip(*rows, strict=True))), max(map(sum, rows))

    return max(_LETTERS, key=explained)


codecs.register_error(
    "latin-1",
    lambda error: (error.object[error.start : error.end].decode("latin-1"), error.end),  # type: ignore[attr-defined]
)
