# SPDX-License-Identifier: GPL-3.0-or-later
"""The games of a PGN file, as programs and people write them.

By PGN's grammar a game ends at its result, or at the next tag; empty lines may stand anywhere. `_STRUCTURE`
and `_WORD` are the table of all tokens. A token that is not in it ends its line, and is named with its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from typing import Literal, NamedTuple, cast, overload

import chess
import chess.pgn

from engine._core import Game
from engine.search.fen import read_fen

NULL = "0000"
"""A null move in UCI notation."""

Kind = Literal["tag", "moves", "end", "comment", "unclosed", "broken", "open", "close"]

_ALIKE = str.maketrans(
    {
        **dict.fromkeys("‐‑‒–⁃−﹘﹣－", "-"),
        **dict.fromkeys("\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff", " "),
        **dict(zip("♔♕♖♗♘♙♚♛♜♝♞♟", 2 * "KQRBNP", strict=True)),
        **dict.fromkeys("ОоΟο", "O"),  # Cyrillic and Greek
        **dict(zip("―\ufe0f†‡×！？“”„", '—\ufe0e+#x!?"""', strict=True)),
    }
)
"""Characters that word processors and books write for those of PGN. Each has one, so that places stay."""

_STRUCTURE = re.compile(
    r"""
    (?= [{;%[()1½0*] ) (?:
    (?P<comment> \{ | ;[^\n]* | ^%[^\n]* )
    | (?P<tag> \[ \s* (?P<name>[^\s"\[\]]+) \s* "(?P<value>[^\n]{0,1000}?)" \s* \] )
    | (?P<mark> \[ (?: [^\[\]{}"\n]* | %[^\[\]\n]* ) \] )
    | (?P<broken> \[ \s* \w+ \s* "[^\n]* )
    | (?P<end> (?<![\w/—-]) (?:1[—-]0|0[—-]1|1/2(?:[—-]1/2)?|½(?:[—-]½)?|\*) (?![\w/—-]) )
    | (?P<bracketed> \( \s? (?:[QRBNDK=+\#]|[!?]{1,2}) \s? \) )
    | (?P<open> \( )
    | (?P<close> \) )
    )
    """,
    re.VERBOSE | re.MULTILINE,
)
"""Separators of a PGN file, with moves between them. mark: text in square brackets. bracketed: part of the
moves, such as a8(Q)."""

_TAG_LINE = re.compile(r'^[ \t]*\[\s*\w+\s+"[^\n]*"\s*\]', re.MULTILINE)

_GAP = re.compile(r"\n\s*\n")

_NUMBERED = re.compile(r"(?:\A\s*|^[ \t]*)(\d+)\s*\.", re.MULTILINE)
"""Start of a game without tags: a move number at the begin of a text or line."""

_IS_MARK = re.compile(r"[^\w-]*|[DN]")
"""Marks among tags, which do not begin the moves."""

_FIRST_NUMBER = re.compile(r"(\d+)\s*\.")

_HIDDEN = re.compile(r"\b\d+\s*\.+\s*[KQRBNOa-h0]")
"""A move with its number in a comment to the end of the line, which may have swallowed it."""

_SIGNS = {
    "!": 1, "?": 2, "!!": 3, "‼": 3, "??": 4, "⁇": 4, "!?": 5, "⁉": 5, "?!": 6, "⁈": 6, "□": 7, "=": 10,
    "∞": 13, "⩲": 14, "+=": 14, "+/=": 14, "⩱": 15, "=+": 15, "=/+": 15, "±": 16, "+/-": 16, "∓": 17,
    "-/+": 17, "+-": 18, "+—": 18, "-+": 19, "—+": 19, "⨀": 22, "⊙": 22, "○": 26, "⟳": 32, "↻": 32, "↑": 36,
    "→": 40, "⯹": 44, "=/∞": 44, "∞/=": 44, "©": 44, "⇆": 132, "⇄": 132, "⨁": 138, "⊕": 138, "∆": 140,
    "Δ": 140, "△": 140, "∇": 141, "▽": 141, "⌓": 142, "N": 146, "D": 220, "⇔": 239, "⇗": 240, "⊞": 241,
    "⟫": 242, "»": 242, "⟪": 243, "«": 243, "✕": 244, "⊥": 245, "+": None, "++": None, "#": None,
}  # fmt: skip
"""Numeric annotation glyphs of the standard and of common programs, by sign; None for signs of check."""

_OF_A_SIDE = {22, 26, 32, 36, 40, 44, 132, 138}
"""Glyphs that are about White. The next number is about Black."""

LARGEST_NAG = 255

_WORD = re.compile(
    rf"""
    (?P<sign> (?: {"|".join(re.escape(each) for each in sorted(_SIGNS, key=len)[::-1] if each not in "DN")} )
        (?![\w=/—-]) )
    | (?P<null> (?: --|—{{1,2}}|Z0|0000|@@@@|<>|null|pass ) (?![\w—-]) )
    | P?\ufe0e? (?: (?P<san> [KQRBN]?\ufe0e?[a-h]?[1-8]?[-—x:]?[a-h][1-8] )
          (?: (?<=[18]) (?: [=/](?P<into>[QRBNqrbn]) | (?P<glued>[QRBNqrbn])(?![a-h\d])
            | \s?\(\s?(?P<inner>[QRBN])\s?\) ) \ufe0e? )?
        | (?P<castling> [Oo0][—-][Oo0](?:[—-][Oo0])? )(?![\w—-]) )
      (?P<move> (?: [+\#]+(?![-=/—]) | \s?e\.?p\.?(?!\w) | ch(?!\w) )* )
    | (?P<number> (?<![\w+\#])\d+ | \d+(?=\s*[.…]) ) (?P<dots> (?: \s*[.…] )* )
    | (?P<pause> [.…]{{2,}} | … | (?<=\S)\. | e\.?p\.?(?!\w) )
    | \$ (?P<nag> \d+ )
    | (?P<letters> [DN](?!\w) )
    | \(\s?(?P<bracketed> [DN=+\#]|[!?]{{1,2}} )\s?\)
    | (?P<unknown> \S+ )
    """,
    re.VERBOSE,
)
"""The tokens between comments, variations and results. letters: novelty, diagram."""

MOST_FAULTS = 100
"""Maximum faults of a game that are reported: finding the line of each takes time."""

RESULTS = ("1-0", "0-1", "1/2-1/2", "*")

_ESCAPED = re.compile(r"\\([\"\\])")

_SPELLINGS = {name.lower(): name for name in ("FEN", "SetUp", "Variant", "Result")}
"""Tags with an effect on the game, by lower-case name."""

_ORDINARY = re.compile(
    "(?:normal|standard|regular|orthodox|classical|chess|fromposition|illegal|wild[0-8]a?)*"
)
_CHESS960 = re.compile(".*960.*|.*fischerr?andom.*|freestyle.*|wildfr")
"""Names of ordinary chess and of Chess960 in small letters and digits."""

_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


class PgnError(ValueError):
    """A game is unreadable. The message gives the reason."""


class TokenError(PgnError):
    """A token is not understood at its place. depth: of variations. ends: the line ends there."""

    def __init__(self, text: str, *, depth: int = 0, ends: bool = False) -> None:
        super().__init__(text)
        self.depth, self.ends = depth, ends


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
        head = takewhile(lambda part: part.kind != "moves", _parts(self.text))
        tags = {part.name: part.value for part in head if part.kind == "tag"}
        return tags.get("White", "?"), tags.get("Black", "?")

    @property
    def players(self) -> str:
        """White and Black for messages."""
        return " – ".join(cleaned(name)[:40] for name in self.names)

    def read(self, *, null_moves: bool = False) -> chess.pgn.Game:
        """Return the game with its tags, comments and variations.

        Each token is understood, or it ends its line: the reason with line, column and token is in the
        game's `errors` and in a comment there. The other faults are in `errors`, too, such as a result that
        contradicts the board. null_moves: keep those of the main line, which no engine can search; otherwise
        they end it. Raises PgnError if the start is unreadable or the game is not chess.
        """
        return _Reading(self, null_moves=null_moves).game


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
            is_tag, offset = part.kind in ("tag", "broken"), part.offset
            if not (is_tag or playing):
                own_line = not before or "\n" in text[before:offset]
                start = _game_start(part.text, own_line=own_line, first=not found)
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
            moved = moved or not (is_tag or _IS_MARK.fullmatch(part.text))
            named = named or part.name == "Event"
            if is_tag:
                last_tag = offset + len(part.text)


def main_fault(game: chess.pgn.Game) -> TokenError | None:
    """Return why the main line of a game that was read may lack moves, or None."""
    faults = [each for each in game.errors if isinstance(each, TokenError) and not each.depth]
    return max(faults, key=lambda each: each.ends, default=None)


def result_on_board(board: chess.Board) -> str | None:
    """Return the result of a position with mate, stalemate or too few men to mate, or None."""
    if board.is_checkmate():
        return "0-1" if board.turn else "1-0"
    return "1/2-1/2" if board.is_stalemate() or board.is_insufficient_material() else None


class Walk:
    """A position that steps along the lines of a game and back. Moves are UCI, null moves 0000."""

    def __init__(self, board: Game) -> None:
        self.board = board
        self.ply = board.ply
        self._before: list[Game | None] = []
        """By move: the board before a null move, None for other moves."""

    def san(self, move: str) -> str:
        """Return a move as SAN. Raises ValueError."""
        return "--" if move == NULL else self.board.san(move)

    def push(self, move: str) -> None:
        """Play a move. Raises ValueError."""
        before = None
        if move == NULL:
            placed, turn, castling, _, rule50, number = self.board.fen().split()
            other, number = ("b", number) if turn == "w" else ("w", str(int(number) + 1))
            passed = Game(f"{placed} {other} {castling} - {rule50} {number}", self.board.chess960)
            before, self.board = self.board, passed
        else:
            self.board.push_uci(move)
        self._before.append(before)
        self.ply += 1

    def push_san(self, san: str) -> str:
        """Play a move other than a null move, and return it. Raises ValueError."""
        move = self.board.push_san(san)
        self._before.append(None)
        self.ply += 1
        return move

    def pop(self) -> None:
        """Take a move back."""
        before = self._before.pop()
        self.ply -= 1
        if before is None:
            self.board.pop()
        else:
            self.board = before


@dataclass(slots=True)
class _Line:
    """A line that is being read. node: its last one. base: the one before its first move. ply: of the base.
    replaced: the move that a variation replaces. numbered: the last move number, its ply and its offset."""

    node: chess.pgn.GameNode
    base: chess.pgn.GameNode
    ply: int
    replaced: str = ""
    numbered: tuple[int, int, int] | None = None


class _Reading:
    """Builds a game from its text."""

    def __init__(self, source: PgnGame, *, null_moves: bool) -> None:
        self._source, self._null_moves = source, null_moves
        self.game = game = chess.pgn.Game()
        self._cut: int | None = None
        """Depth of a line that ended early."""
        self._comments: dict[chess.pgn.GameNode, list[str]] = {}
        self._first_comment = ""
        """Comment before the first move of a variation."""
        self._knight = False
        """Whether an N came last, which is a novelty or belongs to the next move."""
        self._offset: int | None = None
        """Difference of the move numbers in the text and in the position."""
        self._unnumbered = self._misnumbered = False
        self._lines: list[_Line] = []
        parts = list(_parts(source.text))
        self._walk = Walk(self._start(self._tags(parts)))
        _check_start(game.headers, next((part.text for part in parts if part.kind == "moves"), ""))
        if "FEN" not in game.headers:
            self._offset = 0
        self._lines.append(_Line(game, game, self._walk.ply))
        self._read(parts)

    def _tags(self, parts: Sequence[_Part]) -> dict[str, str]:
        """Set the headers. Raises PgnError."""
        tags: dict[str, str] = {}
        for part in parts:
            if part.kind == "tag":
                if part.name == "FEN" and tags.get("FEN", part.value) != part.value:
                    raise PgnError("the game has two FEN tags: end each game with its result, such as *")
                tags[part.name] = part.value
            elif part.kind == "broken":
                error = self._note(part.offset, part.text, 'is not a tag: write [Name "value"]')
                if re.match(r"\[\s*(?:FEN|SetUp|Variant)", part.text, re.IGNORECASE):
                    raise error
        if "Variant" in tags:
            tags["Variant"] = self._variant(cleaned(tags["Variant"]))
        for name, value in tags.items():
            try:
                self.game.headers[name] = cleaned(_ESCAPED.sub(r"\1", value))
            except ValueError:
                self._fault(f"the tag {name[:40]!a} is not written with letters and digits")
        return tags

    def _variant(self, name: str) -> str:
        """Return a variant in python-chess's spelling. Raises PgnError for other games than chess."""
        short = re.sub(r"[^a-z0-9]", "", name.lower())
        if _CHESS960.fullmatch(short):
            return "Chess960"
        if not _ORDINARY.fullmatch(short):
            from chess.variant import find_variant

            board: type[chess.Board] = chess.Board
            with suppress(ValueError):
                board = find_variant(name)
            if board is not chess.Board:
                raise PgnError(f"the variant {name[:40]!a} is not chess")
            self._fault(f"the variant {name[:40]!a} is unknown: the game is read as chess")
        return "Standard"

    def _start(self, tags: Mapping[str, str]) -> Game:
        """Return the first position. Raises PgnError."""
        fen, headers = tags.get("FEN"), self.game.headers
        if fen is None:
            return Game(None, headers.is_chess960())
        try:
            board, corrections = read_fen(fen, headers.board().chess960)
        except ValueError as error:
            raise PgnError(f"FEN {fen[:90]!a}: {str(error)[:100]}") from None
        for each in corrections:
            self._fault(f"FEN {fen[:90]!a}: {each}")
            headers["FEN"] = board.fen()
        return board

    def _read(self, parts: Sequence[_Part]) -> None:
        """Read comments, moves and variations, up to the first fault of the main line."""
        ended = ""
        for part in parts:
            if part.kind == "end" and not part.depth:
                result = _result(part.text)
                if ended not in ("", result):
                    self._note(part.offset, part.text, "is a second result")
                ended = ended or result
            elif part.kind == "close" and part.depth and part.depth == self._cut:
                self._close()
            elif self._cut is not None:
                continue
            elif part.kind in ("comment", "unclosed"):
                self._comment(part)
            elif ended:
                if part.kind == "moves":
                    self._comment(part)
                    if any(token["san"] for token in _WORD.finditer(part.text)):
                        self._note(part.offset, part.text, "is a move after the result")
            elif part.kind == "open":
                self._open(part)
            elif part.kind == "close" and part.depth:
                self._close()
            elif part.kind == "close":
                self._stop(part.offset, ")", "has no opening bracket")
            elif part.kind == "moves":
                self._moves(part)
        line = self._lines[-1]
        if len(self._lines) > 1:
            self._fault("a variation has no closing bracket")
        elif self._cut is None and line.numbered and line.numbered[1] == self._walk.ply:
            number, _, place = line.numbered
            self._note(place, str(number), "has no move")
        for node, texts in self._comments.items():
            node.comment = " ".join(filter(None, texts))
        self._check_result(ended)

    def _open(self, part: _Part) -> None:
        """Begin a variation."""
        line, replaced = self._lines[-1], ""
        node = line.node
        if isinstance(node, chess.pgn.ChildNode) and node is not line.base:
            replaced, node = node.move.uci(), node.parent
            self._walk.pop()
        self._first_comment = ""
        self._lines.append(_Line(node, node, self._walk.ply, replaced))
        if not replaced:
            self._stop(part.offset, "(", "begins a variation without a move before it")

    def _close(self) -> None:
        """End a variation."""
        line = self._lines.pop()
        self._cut, self._knight = None, False
        while self._walk.ply > line.ply:
            self._walk.pop()
        if line.replaced:
            self._walk.push(line.replaced)

    def _comment(self, part: _Part) -> None:
        """Note a comment at the last move, and report what it may have swallowed."""
        begin, text = self._source.text[part.offset], cleaned(part.text)
        line = self._lines[-1]
        if text in ("[D]", "[#]"):
            line.node.nags.add(220)
            return
        if line.node is line.base and line.node is not self.game:
            self._first_comment = f"{self._first_comment} {text}".strip()
        else:
            self._comments.setdefault(line.node, []).append(text)
        if part.kind == "unclosed":
            self._stop(part.offset, begin, "begins a comment with no closing brace")
        elif begin == "{" and "{" in text:
            self._note(part.offset, part.text, "is a comment with another brace")
        elif begin in ";%" and _HIDDEN.search(text):
            self._note(part.offset, part.text, "is a comment with moves")
        elif begin == "[" and line.node is self.game and not text.startswith("[%"):
            reason = 'is not a tag: write [Name "value"]'
            self._note(part.offset, part.text, reason)

    def _moves(self, part: _Part) -> None:
        """Read tokens until one is not understood."""
        line = self._lines[-1]
        for token in _WORD.finditer(part.text):
            kind, place = token.lastgroup, part.offset + token.start()
            if kind == "move":
                reason = self._move(line, token)
            elif kind == "dots":
                reason = self._number(line, token, place)
            elif kind == "null":
                reason = self._null_move(line)
            elif kind == "unknown":
                reason = "is not a move in English notation, nor a mark"
            else:
                reason = self._mark(line, token, place)
            if reason:
                self._stop(place, token[0], reason)
                return

    def _move(self, line: _Line, token: re.Match[str]) -> str:
        """Play a move. Return what is wrong with it."""
        if token["castling"]:
            san = "O-O-O" if len(token["castling"]) > 3 else "O-O"
        else:
            san = token["san"]
            if not san.isascii():
                san = san.replace("\ufe0e", "").replace("—", "-")
            san += (token["into"] or token["glued"] or token["inner"] or "").upper()
        if self._knight:
            self._knight = False
            with suppress(ValueError):
                self._walk.push_san(f"N{san}")
                self._walk.pop()
                return "is a pawn's move, or with the N before it a knight's"
        try:
            move = self._walk.push_san(san)
        except ValueError as error:
            return "fits several moves" if str(error).startswith("several") else "is an illegal move"
        self._add(line, move)
        return ""

    def _null_move(self, line: _Line) -> str:
        if len(self._lines) == 1 and not self._null_moves:
            return "is a null move, which cannot be played"
        try:
            self._walk.push(NULL)
        except ValueError:
            return "is a null move in check"
        self._add(line, NULL)
        return ""

    def _add(self, line: _Line, move: str) -> None:
        line.node = line.node.add_variation(_move_of(move), starting_comment=self._first_comment)
        self._first_comment = ""

    def _number(self, line: _Line, token: re.Match[str], place: int) -> str:
        """Compare a move number with the position, which shows lost moves. Return what is wrong."""
        number = int(token["number"]) if len(token["number"]) < 10 else 10**9
        of_black = token["dots"].count(".") > 1 or "…" in token["dots"]
        ply, self._knight = self._walk.ply, False
        due, black_due = ply // 2 + 1, ply % 2 == 1
        if self._offset is None:  # With a FEN, some programs count from 1, or as if White were to move.
            self._offset, self._unnumbered = number - due, black_due and not of_black
        number -= self._offset
        before, line.numbered = line.numbered, (number, ply, place)
        if before and before[1] == ply:
            return "follows a move number without a move"
        if self._unnumbered or (before is None and (number == due or of_black)):
            return ""
        if of_black != black_due and not (black_due and before and before[:2] == (number, ply - 1)):
            return f"is not due: {'Black' if black_due else 'White'} is to move"
        if number != due and not self._misnumbered:
            self._misnumbered = True
            reason = f"is not due: it is move {due + self._offset}"
            self._note(place, token[0], reason)
        return ""

    def _mark(self, line: _Line, token: re.Match[str], place: int) -> str:
        """Note a mark at the last move. Return what is wrong with it."""
        sign = token["sign"] or token["letters"] or token["bracketed"]
        if token["letters"]:
            self._knight = sign == "N"
            if self._source.text[place] != sign or (line.numbered and line.numbered[1] == self._walk.ply):
                return "is not a move"
        nag = _SIGNS.get(sign) if sign else None
        if token["nag"]:
            nag = int(token["nag"]) if len(token["nag"]) <= len(str(LARGEST_NAG)) else LARGEST_NAG + 1
            if nag > LARGEST_NAG:
                reason = f"is not an annotation from $0 to ${LARGEST_NAG}"
                self._note(place, token[0], reason)
                nag = None
        elif nag in _OF_A_SIDE and self._walk.ply % 2 == 0:
            nag += 1
        if nag is not None:
            line.node.nags.add(nag)
        return ""

    def _check_result(self, ended: str) -> None:
        headers = self.game.headers
        result = _result(headers["Result"])
        if result not in RESULTS:
            if result not in ("?", ""):
                self._fault(f"the Result tag {result[:20]!a} is not one of {', '.join(RESULTS)}")
            result = "*"
        if "*" not in (result, ended or "*") and result != ended:
            self._fault(f"the Result tag is {result}, but the moves end with {ended}")
        elif result != "*" and not ended and self._cut is None:
            self._fault(f"the Result tag is {result}, but the moves end without a result")
        headers["Result"] = result = ended if result == "*" and ended else result
        if self._cut is None and len(self._lines) == 1:
            real = result_on_board(chess.Board(self._walk.board.fen(), chess960=self._walk.board.chess960))
            if real is not None and result not in ("*", real):
                self._fault(f"the result is {result}, but on the board it is {real}")

    def _stop(self, offset: int, token: str, reason: str) -> None:
        """End the line that is being read."""
        error = self._note(offset, token, reason, ends=True)
        self._cut, self._knight = len(self._lines) - 1, False
        text = f"Unread from here: {cleaned(str(error)).replace('}', ')')}"
        self._comments.setdefault(self._lines[-1].node, []).append(text)

    def _note(self, offset: int, token: str, reason: str, *, ends: bool = False) -> TokenError:
        """Add a fault with its place. Columns count characters from 1."""
        depth = max(0, len(self._lines) - 1)
        if len(self.game.errors) >= MOST_FAULTS and (depth or not ends):
            return TokenError(reason, depth=depth, ends=ends)
        text = self._source.text
        line, column = self._source.line + text.count("\n", 0, offset), offset - text.rfind("\n", 0, offset)
        shown = text[offset : offset + min(40, len(token))].partition("\n")[0].rstrip()
        error = TokenError(f"line {line}, column {column}: {shown!r} {reason}", depth=depth, ends=ends)
        self.game.errors.append(error)
        return error

    def _fault(self, text: str) -> None:
        self.game.errors.append(PgnError(text))


def cleaned(text: str) -> str:
    """Return a value or comment in one line, with control characters escaped."""
    line = " ".join(text.split())
    return line if line.isprintable() else _CONTROLS.sub(lambda match: f"\\x{ord(match[0]):02x}", line)


def tag_value(text: str) -> str:
    """Return a value for the tag of a PGN that is written."""
    return cleaned(text).replace("\\", "\\\\").replace('"', '\\"')


def _result(text: str) -> str:
    """Return a result in the spelling of the standard."""
    text = text.translate(_ALIKE).replace("—", "-").replace("½", "1/2")
    return "1/2-1/2" if text == "1/2" else text


@cache
def _move_of(uci: str) -> chess.Move:
    return chess.Move.from_uci(uci)


def _parts(text: str) -> Iterator[_Part]:
    """Yield the parts of a text. Moves within a variation have a depth above 0, like its brackets."""
    plain = text.translate(_ALIKE)
    depth = begin = position = 0
    closing = -1
    while match := _STRUCTURE.search(plain, position):
        start, position, kind = match.start(), match.end(), match.lastgroup
        if kind == "bracketed":
            continue
        if words := plain[begin:start].strip():
            yield _Part("moves", words, plain.index(words[0], begin), depth)
        if match[0] == "{":
            if closing < position:
                closing = text.find("}", position)
                closing = len(text) if closing < 0 else closing
            # A comment may quote tags. But if another comment begins after them, the brace is that one's.
            tag = _TAG_LINE.search(text, position, closing)
            if tag and (closing == len(text) or text.find("{", tag.start(), closing) >= 0):
                position = tag.start()
                yield _Part("unclosed", text[start + 1 : position], start, depth)
            else:
                position = min(closing + 1, len(text))
                kind = "comment" if closing < len(text) else "unclosed"
                yield _Part(cast(Kind, kind), text[start + 1 : closing], start, depth)
        elif kind == "comment":
            yield _Part("comment", text[start + 1 : position].replace("}", ")"), start, depth)
        elif kind == "mark":
            yield _Part("comment", text[start:position], start, depth)
        elif kind == "open":
            depth += 1
            yield _Part("open", "(", start, depth)
        elif kind == "close":
            yield _Part("close", ")", start, depth)
            depth = max(0, depth - 1)
        elif kind == "tag":
            depth = 0  # An unclosed variation ends with its game.
            name, value = match["name"], text[slice(*match.span("value"))]
            yield _Part("tag", match[0], start, 0, _SPELLINGS.get(name.lower(), name), value)
        else:
            yield _Part(cast(Kind, kind), match[0], start, depth)
        begin = position
    if words := plain[begin:].strip():
        yield _Part("moves", words, plain.index(words[0], begin), depth)


def _game_start(words: str, *, own_line: bool, first: bool) -> int | None:
    """Return where in words outside games a game begins: at a move number, or at moves alone if the words are
    not in the line of a result. first: no game comes before, so that its number need not be 1."""
    numbered = _NUMBERED.search(words)
    if numbered and (first or numbered[1].lstrip("0") == "1"):
        return numbered.end() - len(numbered[0].lstrip())
    tokens = [_WORD.match(word) for word in words.split()]
    moves = [each is not None and bool(each["san"] or each["castling"]) for each in tokens]
    others = [each is not None and bool(each["number"]) for each in tokens]
    alone = all(move or other for move, other in zip(moves, others, strict=True))
    return 0 if own_line and not numbered and alone and any(moves) else None


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
