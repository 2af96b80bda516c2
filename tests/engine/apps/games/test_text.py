# SPDX-License-Identifier: GPL-3.0-or-later
"""Text files in the encodings that programs write."""

import codecs
import gzip
from pathlib import Path

import pytest

from engine.apps.games.text import TextError, read_text

TEXT = '[White "Müller"]\n[Black "Čapek – “x”"]\n\n1. e4 *\n'


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (TEXT.encode(), ""),
        (codecs.BOM_UTF8 + TEXT.encode(), ""),
        (codecs.BOM_UTF16_LE + TEXT.encode("utf-16-le"), "utf-16-le"),
        (codecs.BOM_UTF16_BE + TEXT.encode("utf-16-be"), "utf-16-be"),
        (TEXT.replace("\n", "\r\n").encode("utf-32"), "utf-32-le"),
        (gzip.compress(TEXT.encode()), ""),
        (gzip.compress(TEXT[:20].encode()) + gzip.compress(TEXT[20:].encode()), ""),
    ],
    ids=["utf-8", "utf-8 mark", "utf-16-le", "utf-16-be", "utf-32-le", "gzip", "gzip members"],
)
def test_text_is_the_same_in_every_encoding(tmp_path: Path, data: bytes, encoding: str) -> None:
    path, notes = tmp_path / "games.pgn", list[str]()
    path.write_bytes(data)
    assert read_text(path, notes.append) == TEXT
    assert [encoding in note for note in notes] == ([True] if encoding else [])


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1252", "Müller\nPeña\nFrançois\nSørensen"),
        ("cp1252", "Jäger"),
        ("cp1250", "Świerczyński, Łukasz\nKraków"),
        ("iso8859-2", "Šimáček\nŽďár"),
        ("cp1250", "Šarić, Ivan\nKožul"),
        ("cp1251", "Иванов, Пётр\nМОСКВА"),
        ("koi8-r", "Сидоров\nПетрозаводск"),
        ("cp1253", "Παπαδάκης"),
        ("utf-16-le", "Müller"),
        ("utf-16-be", "Müller"),
    ],
)
def test_encoding_without_a_mark_is_guessed_by_the_letters(tmp_path: Path, encoding: str, text: str) -> None:
    path, notes = tmp_path / "games.pgn", list[str]()
    text = f'[Event "Open"]\n[White "{text}"]\n\n1. e4 *\n'
    path.write_bytes(text.encode(encoding))
    assert read_text(path, notes.append) == text
    assert len(notes) == 1 and str(path) in notes[0] and encoding in notes[0]


def test_an_encoding_that_is_named_is_taken(tmp_path: Path) -> None:
    path, notes = tmp_path / "games.pgn", list[str]()
    path.write_bytes("Yılmaz".encode("cp1254"))
    assert read_text(path, notes.append, "cp1254") == "Yılmaz" and not notes
    for unknown in ("nothing", "hex"):
        with pytest.raises(TextError, match="--encoding"):
            read_text(path, notes.append, unknown)


def test_lines_in_latin_1_are_decoded_when_other_lines_are_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "games.pgn"
    path.write_bytes("Müller\n".encode() + "Müller \x81\n".encode("latin-1"))
    assert read_text(path) == "Müller\nMüller \x81\n"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"PK\x03\x04rest", "zip"),
        (b"\x28\xb5\x2f\xfdrest", "zstd"),
        (gzip.compress(b"1. e4 *")[:-5], "truncated"),
        (gzip.compress(b"1. e4 *") + b"rest", "damaged"),
        (b"\x1f\x8b\x08\0damaged file", "damaged"),
        (b"\0\0\0\0abc\0\0\0", "no text"),
    ],
    ids=["zip", "zstd", "cut gzip", "gzip and more", "damaged gzip", "zeros"],
)
def test_a_file_that_is_no_text_is_refused_with_its_name(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "games.pgn"
    path.write_bytes(data)
    with pytest.raises(TextError, match=rf"games\.pgn.*{reason}"):
        read_text(path)
