# SPDX-License-Identifier: GPL-3.0-or-later
"""The input of `wavefront evaluate`: JSON lines, FEN and EPD lines, or a PGN file."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from engine._core import Game
from engine.apps.analysis.evaluation import read_line
from engine.apps.games.epd import read_epd
from engine.apps.games.pgn_reading import PgnGames, main_fault
from engine.apps.games.text import read_text
from protocol.common.printing import reason
from protocol.common.settings.spec import shown

MAX_LINE_BYTES = READ_BYTES = 1 << 20

_PGN = re.compile(r"\s*(\[\s*\w+\s+\"|1\s*\.)")
"""The beginning of a PGN file: a tag or the first move."""

_WHOLE = (b"\x1f\x8b", codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""First bytes of files that cannot be split into lines as they are: gzip, UTF-16 and UTF-32."""


class Entry(NamedTuple):
    """A position, or None for an error. fields: of the answer besides the output. line: number from 1."""

    game: Game | None
    fields: dict[str, Any]
    line: int


def entries(source: BinaryIO, path: Path, note: Callable[[str], None]) -> Iterator[list[Entry]]:
    """Yield the positions of a stream as they arrive. path: of the stream. note: see `read_text`.

    Raises TextError for a file that is no text.
    """
    head = source.peek(READ_BYTES)  # type: ignore[attr-defined]
    is_pgn = _PGN.match(head.removeprefix(codecs.BOM_UTF8).decode("latin-1")) is not None
    if not is_pgn and not head.startswith(_WHOLE):
        reader = _Lines()
        yield from map(reader.read, _arriving(source))
        return
    text = read_text(path, note)
    if _PGN.match(text):
        yield from _of_games(text)
    else:
        yield _Lines().read(text.encode().split(b"\n"))


def _arriving(source: BinaryIO) -> Iterator[list[bytes]]:
    """Yield lines as they arrive. A too long line is truncated just beyond the limit."""
    rest = b""
    while data := source.read1(READ_BYTES):  # type: ignore[attr-defined]
        *lines, rest = (rest + data).split(b"\n")
        rest = rest[: MAX_LINE_BYTES + 1]
        yield lines
    yield [rest] if rest else []


class _Lines:
    """Reads JSON, FEN and EPD lines. An empty line is an error among JSON, and skipped among others."""

    def __init__(self) -> None:
        self._number = 0
        self._is_json: bool | None = None
        self._empty: list[Entry] = []
        """Empty lines before the first other one."""

    def read(self, lines: list[bytes]) -> list[Entry]:
        found: list[Entry] = []
        for line in lines:
            self._number += 1
            content = line.removeprefix(codecs.BOM_UTF8).strip()
            if content and self._is_json is None:
                self._is_json = content.startswith((b"{", b"["))
                found += self._empty if self._is_json else []
            if not content and len(line) <= MAX_LINE_BYTES:
                entry = self._entry(*read_line(line, MAX_LINE_BYTES))
                if self._is_json is None:
                    self._empty.append(entry)
                elif self._is_json:
                    found.append(entry)
            elif content.startswith((b"{", b"[")) or len(line) > MAX_LINE_BYTES:
                found.append(self._entry(*read_line(line.removeprefix(codecs.BOM_UTF8), MAX_LINE_BYTES)))
            elif not content.startswith((b"#", b"//", b"%", b";")):
                found.append(self._entry(*_position(content.decode("utf-8", "replace"))))
        return found

    def _entry(self, game: Game | None, fields: dict[str, Any]) -> Entry:
        return Entry(game, fields, self._number)


def _position(text: str) -> tuple[Game | None, dict[str, Any]]:
    """Return the position of a FEN or EPD line, and the answer's fields besides the output."""
    named: dict[str, Any] = {}
    fen = text
    if text != "startpos":
        try:
            line = read_epd(text)
        except ValueError:
            return None, {"error": f"{shown(text)} is no JSON object, FEN or EPD"}
        fen = line.fen
        named = {"id": line.operations["id"]} if "id" in line.operations else {}
    game, fields = read_line(json.dumps({"fen": fen}).encode(), MAX_LINE_BYTES)
    return game, named | fields


def _of_games(text: str) -> Iterator[list[Entry]]:
    """Yield the positions of each game's main line, up to the first error in it."""
    for number, each in enumerate(PgnGames(text), 1):
        found: list[Entry] = []
        try:
            node = each.read()
            board = node.board()
            game = Game(board.fen(), board.chess960)
            for ply, move in enumerate([None, *node.mainline_moves()]):
                if move:
                    game.push_uci(move.uci())
                found.append(Entry(game.copy(), {"game": number, "ply": ply, "fen": game.fen()}, each.line))
            if fault := main_fault(node):
                raise fault
        except Exception as error:  # The other games go on, whatever it is.
            found.append(Entry(None, {"game": number, "error": reason(error)}, each.line))
        yield found
