# SPDX-License-Identifier: GPL-3.0-or-later
"""The games of a PGN file, as programs and people write them.

python-chess ends a game at an empty line, but programs write empty lines anywhere: between tags, before the
moves, between moves. By PGN's grammar a game ends at its result, or at the next tag. So this module splits a
file by the grammar, and passes the tokens of a game to python-chess's builder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, cast, overload

import chess
import chess.pgn

Kind = Literal["tag", "moves", "end", "comment", "unclosed", "bracket", "open", "close"]

_STRUCTURE = re.compile(
    r"""
    (?P<comment> \{ | ;[^\n]* )
    | (?P<escape> ^%[^\n]* )
    | (?P<tag> \[ \s* (?P<name>[^\s"\[\]]+) \s* "(?P<value>[^\n]*?)" \s* \] )
    | (?P<bracket> \[[^\n]* )
    | (?P<end> (?<![\w/-]) (?:1[-–]0|0[-–]1|1/2(?:[-–]1/2)?|½(?:[-–]½)?|\*) (?![\w/-]) )
    | (?P<open> \( )
    | (?P<close> \) )
    """,
    re.VERBOSE | re.MULTILINE,
)
"""Separators of a PGN file, with moves between them. bracket: an unclosed tag."""

_TAG_LINE = re.compile(r'^[ \t]*\[\s*\w+\s+"[^\n]*"\s*\]', re.MULTILINE)

_GAP = re.compile(r"\n\s*\n")

_NUMBERED = re.compile(r"(?:\A\s*|^[ \t]*)\d+\s*\.", re.MULTILINE)
"""Start of a game without tags: a move number at the begin of a text or line."""

_FIRST_NUMBER = re.compile(r"(\d+)\s*\.")

_WORD = re.compile(
    r"""
    (?P<move>
        P? (?: [KQRBN]?[a-h]?[1-8]?[-x:]?[a-h][1-8] (?: (?<=[18])[=/]?[QRBNqrbn](?![a-h\d]) )?
          | [Oo0]-[Oo0](?:-[Oo0])? | -- | Z0 | 0000 | @@@@ )
        (?: [+\#†‡]+(?![-=/]) | e\.?p\.? )*
    )
    | \$ (?P<nag> \d+ )
    | (?P<mark> [!?]{1,2} )
    | (?P<number> \d+ )
    | (?P<letters> (?:e\.?p\.?|N|D)(?!\w) )
    | (?P<sign> [^\w\s♔-♟$@]+? (?=[\w\s♔-♟$@!?]|\Z) )
    """,
    re.VERBOSE,
)
"""A piece of a word between moves. letters: e.p., novelty, diagram. sign: dots, evaluations such as +-."""

_MARKS = {"!": 1, "?": 2, "!!": 3, "??": 4, "!?": 5, "?!": 6}

_SIGNS = {
    "N": 146, "D": 220, "=": 10, "∞": 13, "+=": 14, "⩲": 14, "=+": 15, "⩱": 15, "±": 16, "+/-": 16,
    "∓": 17, "-/+": 17, "+-": 18, "-+": 19, "□": 7,
}  # fmt: skip
"""Numeric annotation glyphs of the standard and of common programs, by sign."""

LARGEST_NAG = 255

RESULTS = ("1-0", "0-1", "1/2-1/2", "*")

_ESCAPED = re.compile(r"\\([\"\\])")

_SPELLINGS = {name.lower(): name for name in ("FEN", "SetUp", "Variant", "Result")}
"""Tags with an effect on the game, by lower-case name."""

_ORDINARY = {
    "", "chess", "standard", "normal", "regular", "orthodox", "classical", "fromposition", "illegal"
}  # fmt: skip
_CHESS960 = {"chess960", "960", "fischerandom", "fischerrandom", "fischerrandomchess", "freestyle", "wildfr"}
"""Names of ordinary chess and of Chess960 in small letters and digits."""

_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


class PgnError(ValueError):
    """A game is unreadable. The message gives the reason."""


class _Part(NamedTuple):
    """A part of a text: kind, content, offset. depth: of variations. name, value: of a tag."""

    kind: Kind
    text: str
    offset: int
    depth: int = 0
    name: str = ""
    value: str = ""


class PgnGame(NamedTuple):
    """One game of a file. line: of its first tag or move, from 1."""

    line: int
    text: str

    @property
    def names(self) -> tuple[str, str]:
        """The names of White and Black, also of an unreadable game; "?" without the tag."""
        tags = {part.name: part.value for part in _parts(self.text) if part.kind == "tag"}
        return tags.get("White", "?"), tags.get("Black", "?")

    @property
    def players(self) -> str:
        """White and Black for messages."""
        return " – ".join(cleaned(name)[:40] for name in self.names)

    def read(self, *, variations: bool = False) -> chess.pgn.Game:
        """Return the game's tags and main line, with comments. variations: keep them too.

        Faults that do not prevent reading the main line are in the game's `errors`: a broken variation, a
        result that contradicts the board. Raises PgnError if a move, tag or first position is unreadable.
        """
        parts = list(_parts(self.text))
        tags: dict[str, str] = {}
        for part in parts:
            if part.kind == "tag":
                if part.name == "FEN" and tags.get("FEN", part.value) != part.value:
                    raise PgnError("the game has two FEN tags: end each game with its result, such as *")
                tags[part.name] = part.value
            elif part.kind == "bracket":
                raise PgnError(f'{part.text.strip()[:60]!a} is not a tag: write [Name "value"]')
        reading = _Reading(tags, variations=variations)
        return reading.game_of(parts)


class PgnGames(Sequence[PgnGame]):
    """The games of a text, located in one pass. Each is parsed on demand, because books are large.

    ignored: line and words of the text before the first game, or None.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self.ignored: tuple[int, str] | None = None
        self._starts = list(self._find())

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

    def _find(self) -> Iterator[tuple[int, int]]:
        """Yield line and offset of each game.

        A game starts with the first tag or move after a result, and with the first tag after moves. If games
        have neither moves nor result, a second Event tag after an empty line starts one. Comments after an
        empty line belong to the next game.
        """
        text = self._text
        line, counted = 1, 0
        playing = moved = named = found = False
        last_tag = before = 0
        comments: int | None = 0  # Where the comments begin that belong to the next game.
        for part in _parts(text):
            if part.depth or part.kind in ("open", "close"):
                continue
            if part.kind in ("comment", "unclosed"):
                if not playing and comments is None and _GAP.search(text, before, part.offset):
                    comments = part.offset
                before = part.offset + len(part.text)
                continue
            if part.kind == "end":
                playing, comments, before = False, None, part.offset + len(part.text)
                continue
            is_tag, offset = part.kind != "moves", part.offset
            if not (is_tag or playing):
                start = _game_start(part.text, own_line=not before or "\n" in text[before:offset])
                if start != 0:
                    comments = None
                    if not (found or self.ignored):
                        self.ignored = 1 + text.count("\n", 0, offset), part.text[:start]
                if start is None:  # Words outside games.
                    continue
                offset += start
            another_event = named and part.name == "Event" and _GAP.search(text, last_tag, offset)
            if not playing or (is_tag and (moved or another_event)):
                line += text.count("\n", counted, offset)
                counted = offset
                yield line, offset if comments is None else comments
                playing, moved, named, found, comments = True, False, False, True, None
            moved = moved or not is_tag
            named = named or part.name == "Event"
            if is_tag:
                last_tag = offset + len(part.text)


def result_on_board(board: chess.Board) -> str | None:
    """Return the result of a position with mate, stalemate or too few men to mate, or None."""
    if board.is_checkmate():
        return "0-1" if board.turn else "1-0"
    return "1/2-1/2" if board.is_stalemate() or board.is_insufficient_material() else None


class _Reading:
    """Builds a game from its parts."""

    def __init__(self, tags: dict[str, str], *, variations: bool) -> None:
        self._variations = variations
        self._builder = chess.pgn.GameBuilder[chess.pgn.Game]()
        self._builder.begin_game()
        self._game = game = self._builder.game
        self._skipped: int | None = None
        """Depth of a variation that is skipped."""
        _set_variant(tags, game)
        for name, value in tags.items():
            try:
                game.headers[name] = cleaned(_ESCAPED.sub(r"\1", value))
            except ValueError:
                self._fault(f"the tag {name[:40]!a} is not written with letters and digits")
        try:
            board = game.board()
        except ValueError as error:
            raise PgnError(f"FEN {tags.get('FEN', '')[:90]!a}: {str(error)[:100]}") from None
        self._boards = [board]

    def game_of(self, parts: Sequence[_Part]) -> chess.pgn.Game:
        """Return the game. Raises PgnError."""
        _check_start(self._game.headers, next((part.text for part in parts if part.kind == "moves"), ""))
        ended = ""
        for part in parts:
            if part.depth and part.kind != "unclosed" and not self._variations:
                continue
            if part.kind == "unclosed":
                if not ended:
                    raise PgnError("a comment has no closing brace")
                self._fault("a comment has no closing brace")
            if part.kind in ("comment", "unclosed") or (part.kind == "moves" and ended):
                self._comment(part.text)
            elif ended:
                continue
            elif part.kind == "end":
                ended = "" if part.depth else _result(part.text)
            elif part.kind == "open":
                self._open(part.depth)
            elif part.kind == "close":
                self._close(part.depth)
            elif part.kind == "moves" and self._skipped is None:
                try:
                    self._moves(part.text)
                except PgnError as error:
                    if not part.depth:
                        raise
                    self._fault(f"a variation ends early: {error}")
                    self._skipped = part.depth
        if len(self._boards) > 1:
            self._fault("a variation has no closing bracket")
        self._check_result(ended)
        return self._game

    def _open(self, depth: int) -> None:
        """Begin a variation of this depth."""
        if self._skipped is not None:
            return
        if not self._boards[-1].move_stack:
            self._fault("a variation has no move before it")
            self._skipped = depth
            return
        before = self._boards[-1].copy(stack=1)
        before.pop()
        self._builder.begin_variation()
        self._boards.append(before)

    def _close(self, depth: int) -> None:
        """End a variation of this depth."""
        skipped, opened = self._skipped, len(self._boards) > depth
        if skipped is not None and depth <= skipped:
            self._skipped = None
        if opened and (skipped is None or depth <= skipped):
            self._builder.end_variation()
            self._boards.pop()

    def _comment(self, text: str) -> None:
        if self._skipped is None and (text := cleaned(text)):
            self._builder.visit_comment(text)

    def _moves(self, text: str) -> None:
        for word in text.split():
            position = 0
            while position < len(word):
                match = _WORD.match(word, position)
                if match is None:
                    raise PgnError(f"{word[:40]!a} is not a move in English notation")
                position = match.end()
                if match["move"]:
                    self._move(match["move"])
                else:
                    self._annotation(match)

    def _move(self, text: str) -> None:
        board = self._boards[-1]
        try:
            move = board.parse_san(_san(text))
        except ValueError as error:
            raise PgnError(str(error)) from None
        self._builder.visit_move(board, move)
        board.push(move)

    def _annotation(self, match: re.Match[str]) -> None:
        sign = match["letters"] or match["sign"]
        nag = _MARKS[match["mark"]] if match["mark"] else _SIGNS.get(sign) if sign else None
        if match["nag"]:
            nag = int(match["nag"]) if len(match["nag"]) <= len(str(LARGEST_NAG)) else LARGEST_NAG + 1
            if nag > LARGEST_NAG:
                self._fault(f"${match['nag'][:10]} is not an annotation from $0 to ${LARGEST_NAG}")
                return
        if nag is not None:
            self._builder.visit_nag(nag)

    def _check_result(self, ended: str) -> None:
        result = _result(self._game.headers["Result"])
        if result not in RESULTS:
            if result not in ("?", ""):
                self._fault(f"the Result tag {result[:20]!a} is not one of {', '.join(RESULTS)}")
            result = "*"
        if "*" not in (result, ended or "*") and result != ended:
            self._fault(f"the Result tag is {result}, but the moves end with {ended}")
        result = ended if result == "*" and ended else result
        self._game.headers["Result"] = result
        real = result_on_board(self._boards[0])
        if real is not None and result not in ("*", real):
            self._fault(f"the result is {result}, but on the board it is {real}")

    def _fault(self, text: str) -> None:
        self._game.errors.append(PgnError(text))


def cleaned(text: str) -> str:
    """Return a value or comment in one line, with control characters escaped."""
    return _CONTROLS.sub(lambda match: f"\\x{ord(match[0]):02x}", " ".join(text.split()))


def _result(text: str) -> str:
    """Return a result in the spelling of the standard."""
    text = text.replace("–", "-").replace("½", "1/2")
    return "1/2-1/2" if text == "1/2" else text


def _san(text: str) -> str:
    """Return a move in the spelling of python-chess."""
    text = re.sub(r"[+#†‡]|e\.?p\.?", "", text).replace(":", "x").removeprefix("P")
    if text[:1] in "Oo0" and text[1:2] == "-":
        return text.upper().replace("0", "O")
    return re.sub(r"[=/]?([QRBNqrbn])$", r"=\1", text)


def _set_variant(tags: dict[str, str], game: chess.pgn.Game) -> None:
    """Give the variant a name that python-chess knows. Raises PgnError for other games than chess."""
    name = tags.get("Variant")
    if name is None:
        return
    game.headers["Variant"] = name = cleaned(name)
    short = re.sub(r"[^a-z0-9]", "", name.lower())
    if short in _CHESS960:
        name = name if game.headers.is_chess960() else "Chess960"
    elif short in _ORDINARY:
        name = name if name.lower() in ("chess", "standard", "normal") else "Standard"
    elif not game.headers.is_wild():
        raise PgnError(f"the variant {name[:40]!a} is not chess")
    tags["Variant"] = name


def _parts(text: str) -> Iterator[_Part]:
    """Yield the parts of a text. Moves within a variation have a depth above 0, like its brackets."""
    depth = position = 0
    closing = -1
    while match := _STRUCTURE.search(text, position):
        yield from _words(text, position, match.start(), depth)
        start, position, kind = match.start(), match.end(), match.lastgroup
        if match[0] == "{":
            if closing < position:
                closing = text.find("}", position)
                closing = len(text) if closing < 0 else closing
            # A comment may quote tags. But if another comment begins after them, the brace is that one's.
            tag = _TAG_LINE.search(text, position, closing)
            if tag and (closing == len(text) or text.find("{", tag.start(), closing) >= 0):
                position = tag.start()
                yield _Part("unclosed", text[start:position], start, depth)
            else:
                position = min(closing + 1, len(text))
                kind = "comment" if closing < len(text) else "unclosed"
                yield _Part(cast(Kind, kind), text[start + 1 : closing], start, depth)
        elif kind == "comment":
            yield _Part("comment", match[0][1:].replace("}", ")"), start, depth)
        elif kind == "open":
            depth += 1
            yield _Part("open", "(", start, depth)
        elif kind == "close":
            if depth:
                yield _Part("close", ")", start, depth)
                depth -= 1
        elif kind == "tag":
            depth = 0  # An unclosed variation ends with its game.
            name, value = match["name"], match["value"]
            yield _Part("tag", match[0], start, 0, _SPELLINGS.get(name.lower(), name), value)
        elif kind != "escape":
            yield _Part(cast(Kind, kind), match[0], start, depth)
    yield from _words(text, position, len(text), depth)


def _words(text: str, start: int, end: int, depth: int) -> Iterator[_Part]:
    words = text[start:end]
    if not words.isspace() and words:
        begin = start + len(words) - len(words.lstrip())
        yield _Part("moves", words.strip(), begin, depth)


def _game_start(words: str, *, own_line: bool) -> int | None:
    """Return where in words outside games a game begins: at a move number, or at moves alone if the words are
    not in the line of a result."""
    numbered = _NUMBERED.search(words)
    if numbered:
        return numbered.end() - len(numbered[0].lstrip())
    pieces = [_WORD.match(word) for word in words.split()]
    moves = all(piece is not None and (piece["move"] or piece["number"]) for piece in pieces)
    return 0 if own_line and moves and any(piece is not None and piece["move"] for piece in pieces) else None


def _check_start(tags: chess.pgn.Headers, moves: str) -> None:
    """Refuse a game that may not start in the initial position, but has no FEN."""
    if "FEN" in tags:
        return
    if tags.get("SetUp", "0") == "1":
        raise PgnError("SetUp is 1, but there is no FEN tag")
    if tags.is_chess960():
        raise PgnError(f"Variant is {tags['Variant']}, but there is no FEN tag")
    number = _FIRST_NUMBER.match(moves)
    if number and (digits := number[1].lstrip("0")) != "1":
        raise PgnError(f"the game begins with move {digits[:10] or 0}, but there is no FEN tag")
