# SPDX-License-Identifier: GPL-3.0-or-later
"""The games of a PGN file, each read by python-chess.

python-chess ends a game at an empty line, but programs write empty lines anywhere: between tags, before the
moves, between moves. By PGN's grammar a game ends at its result, or at the next tag. So this module splits a
file by the grammar, and passes each game to python-chess in the layout that it expects.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, cast, overload

import chess
import chess.pgn

Kind = Literal["tag", "moves", "end", "comment", "bracket"]

_STRUCTURE = re.compile(
    r"""
    (?P<comment> \{[^}]*\}? | ;[^\n]* | ^%[^\n]* )
    | (?P<tag> \[ \s* (?P<name>[^\s"\[\]]+) \s* "(?P<value>[^\n]*?)" \s* \] )
    | (?P<bracket> \[[^\n]* )
    | (?P<end> (?<![\w/-]) (?:1-0|0-1|1/2-1/2|\*) (?![\w/-]) )
    | (?P<open> \( )
    | (?P<close> \) )
    """,
    re.VERBOSE | re.MULTILINE,
)
"""Separators of a PGN file, with moves between them. bracket: an unclosed tag."""

_GAP = re.compile(r"\n\s*\n")

_FIRST_NUMBER = re.compile(r"(\d+)\s*\.")

_UNREAD = re.compile(r"[^\W\d_]+|[♔-♟]")

_ANNOTATIONS = {"e", "p", "ep", "P", "N", "D"}
"""Letters next to moves without effect: e.p., the P of a pawn, novelty, diagram."""

_SPELLINGS = {name.lower(): name for name in ("FEN", "SetUp", "Variant")}
"""Tags that determine the start of a game, by lower-case name."""


class PgnError(ValueError):
    """A game is unreadable. The message gives the reason."""


class _Part(NamedTuple):
    """A part of a text: kind, content, offset. name, value: of a tag."""

    kind: Kind
    text: str
    offset: int
    name: str = ""
    value: str = ""


class PgnGame(NamedTuple):
    """One game of a file. line: its first line, from 1."""

    line: int
    text: str

    def read(self, *, variations: bool = False) -> chess.pgn.Game:
        """Return the game's tags and main line, with comments. variations: keep them too.

        Raises PgnError if a move, a tag or the first position is unreadable.
        """
        tags: dict[str, str] = {}
        movetext: list[str] = []
        moves: list[str] = []
        for part in _main_line(self.text):
            if part.kind == "tag":
                if part.name == "FEN" and tags.get("FEN", part.value) != part.value:
                    raise PgnError("the game has two FEN tags: end each game with its result, such as *")
                tags[part.name] = part.value
            elif part.kind == "bracket":
                raise PgnError(f'{part.text.strip()[:60]!a} is not a tag: write [Name "value"]')
            elif part.kind != "comment":
                movetext.append(part.text)
                moves += [part.text] if part.kind == "moves" else []
            elif part.text.startswith("{"):
                if not part.text.endswith("}"):
                    raise PgnError("a comment has no closing brace")
                movetext.append(part.text)
        _check_start(tags, moves)
        _check_words(moves)
        header = "".join(f'[{name} "{value}"]\n' for name, value in tags.items())
        if variations:
            movetext = [_without_tags(self.text)]
        body = "\n".join(movetext) or "*"
        game = chess.pgn.read_game(io.StringIO(f"{header}\n{body}\n"), Visitor=_QuietGameBuilder)
        if game is None:
            raise PgnError("there is no game")
        if game.errors:
            raise PgnError(str(game.errors[0]))
        return game


def _without_tags(text: str) -> str:
    """Return all movetext in one paragraph, with variations and comments."""
    parts, position = [], 0
    for match in _STRUCTURE.finditer(text):
        if match.lastgroup in ("tag", "bracket") or (match.lastgroup == "comment" and match[0][0] != "{"):
            parts.append(text[position : match.start()])
            position = match.end()
    return " ".join("".join([*parts, text[position:]]).split())


class PgnGames(Sequence[PgnGame]):
    """The games of a text, located in one pass. Each is parsed on demand, because books are large."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = list(_starts(text))

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, index: int) -> PgnGame: ...

    @overload
    def __getitem__(self, index: slice) -> list[PgnGame]: ...

    def __getitem__(self, index: int | slice) -> PgnGame | list[PgnGame]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        line, start = self._starts[index]
        end = self._starts[index + 1][1] if index + 1 < len(self) else len(self._text)
        return PgnGame(line, self._text[start:end])


class _QuietGameBuilder(chess.pgn.GameBuilder[chess.pgn.Game]):
    """A builder that collects a game's errors in `errors`, and does not print them."""

    def handle_error(self, error: Exception) -> None:
        self.game.errors.append(error)


def _main_line(text: str) -> Iterator[_Part]:
    """Yield the parts of a text outside variations."""
    depth = position = 0
    for match in _STRUCTURE.finditer(text):
        if not depth:
            yield from _moves(text, position, match.start())
        position = match.end()
        kind = match.lastgroup
        if kind == "open":
            depth += 1
        elif kind == "close":
            depth = max(0, depth - 1)
        elif kind == "tag":
            depth = 0  # An unclosed variation ends with its game.
            name, value = match["name"], match["value"]
            yield _Part("tag", match[0], match.start(), _SPELLINGS.get(name.lower(), name), value)
        elif not depth:
            yield _Part(cast(Kind, kind), match[0], match.start())
    if not depth:
        yield from _moves(text, position, len(text))


def _moves(text: str, start: int, end: int) -> Iterator[_Part]:
    moves = text[start:end].split()
    if moves:
        yield _Part("moves", " ".join(moves), text.index(moves[0], start))


def _starts(text: str) -> Iterator[tuple[int, int]]:
    """Yield line and offset of each game.

    A game starts with the first tag or move after a result, and with the first tag after moves. If games have
    neither moves nor result, a second Event tag after an empty line starts one.
    """
    line, counted = 1, 0
    playing = moved = named = False
    last_tag = 0
    for part in _main_line(text):
        if part.kind == "comment":
            continue
        if part.kind == "end":
            playing = False
            continue
        is_tag = part.kind != "moves"
        if not (is_tag or playing or chess.pgn.MOVETEXT_REGEX.search(part.text)):
            continue  # Words outside games.
        another_event = named and part.name == "Event" and _GAP.search(text, last_tag, part.offset)
        if not playing or (is_tag and (moved or another_event)):
            line += text.count("\n", counted, part.offset)
            counted = part.offset
            yield line, part.offset
            playing, moved, named = True, False, False
        moved = moved or not is_tag
        named = named or part.name == "Event"
        if is_tag:
            last_tag = part.offset + len(part.text)


def _check_start(tags: dict[str, str], moves: list[str]) -> None:
    """Refuse a game that may not start in the initial position, but has no FEN."""
    if not tags:
        raise PgnError('a game begins with tags, such as [Event "…"]')
    if "FEN" in tags:
        return
    if tags.get("SetUp", "0") == "1":
        raise PgnError("SetUp is 1, but there is no FEN tag")
    if chess.pgn.Headers(tags).is_chess960():
        raise PgnError(f"Variant is {tags['Variant']}, but there is no FEN tag")
    number = _FIRST_NUMBER.match(moves[0]) if moves else None
    if number and int(number[1]) != 1:
        raise PgnError(f"the game begins with move {int(number[1])}, but there is no FEN tag")


def _check_words(moves: list[str]) -> None:
    """Refuse words that python-chess would skip or parse in part: Sf3 as f3."""
    for text in moves:
        for word in text.split():
            rest = chess.pgn.MOVETEXT_REGEX.sub(" ", word)
            if any(letters not in _ANNOTATIONS for letters in _UNREAD.findall(rest)):
                raise PgnError(f"{word[:40]!a} is not a move in English notation")
