"""Where games begin: openings from EPD, PGN and Polyglot files, the shipped book, or the 960 start positions.

An opening belongs to a round of the schedule and depends on nothing but the settings and the round's
number, so that a resumed match plays on with the same ones.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any, Literal, Protocol, get_args

import chess
import chess.pgn
import chess.polyglot

from engine._core import Game
from engine.games.identity import file_identity
from protocol.host.folders import expanded
from protocol.settings.spec import UNREACHED, setting

Order = Literal["random", "sequential"]

SHIPPED_BOOK = Path(__file__).with_name("openings.pgn")
"""2000 openings of 6 to 10 plies that a strong engine calls balanced."""

INITIAL = "startpos"
"""In the place of a file: the initial position alone."""

POLYGLOT_PLIES = 8
"""Plies taken from a Polyglot book when the settings name no number."""

POLYGLOT_ATTEMPTS = 100
"""Random walks through a Polyglot book in search of a line that was not yet had."""

TAG_LINE = re.compile(r'^\[\w+\s+".*"\]\s*$', re.MULTILINE)


class OpeningError(ValueError):
    """Openings that cannot be read or played. The message names file and line."""


@dataclass(frozen=True, slots=True)
class Opening:
    """Where a game begins.

    fen: the first position, None is the initial one. moves: played from there, in UCI notation
    (castling is king takes rook in Chess960). name: for people."""

    name: str
    fen: str | None = None
    moves: tuple[str, ...] = ()

    def board(self, *, chess960: bool) -> chess.Board:
        """The board after the moves, with the moves on its stack. Raises ValueError for an illegal one."""
        board = chess.Board(self.fen or chess.STARTING_FEN, chess960=chess960)
        for move in self.moves:
            board.push_uci(move)
        return board


@dataclass(frozen=True, slots=True)
class OpeningSettings:
    """Which openings a match takes.

    file: EPD (or FEN lines), PGN or Polyglot (.bin); "" is the shipped book, in Chess960 the 960 start
    positions; "startpos" is the initial position alone. plies: how much of a line is played at most, 0 is
    all of it. start: the first one to take in sequential order, from 1."""

    file: str = setting("")
    order: Order = setting("random", choices=get_args(Order))
    plies: int = setting(0, high=1000)
    start: int = setting(1, low=1, high=UNREACHED)

    def identity(self) -> dict[str, Any]:
        """All that openings depend on, as JSON data: a file counts by its content."""
        file = self.file if self.file == INITIAL else file_identity(self.file)
        return asdict(self) | {"file": file}


class _Source(Protocol):
    """A numbered collection of openings."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Opening:
        """Raises OpeningError."""
        ...


def read_openings(
    settings: OpeningSettings, rounds: int, *, seed: int, chess960: bool = False
) -> list[Opening]:
    """One opening per round; they repeat when there are fewer than rounds.

    Each is checked: legal, and not the end of a game. Raises OpeningError.
    """
    path = expanded(settings.file)
    if path.suffix.lower() == ".bin":
        openings = _polyglot_lines(
            path, rounds, settings.plies or POLYGLOT_PLIES, seed=seed, chess960=chess960
        )
    else:
        source = _source(settings.file, path, settings.plies, chess960=chess960)
        if not len(source):
            hint = ': a game begins with tags, such as [Event "…"]' if path.suffix.lower() == ".pgn" else ""
            raise OpeningError(f"{path} holds no openings{hint}")
        openings = _in_order(source, settings, rounds, seed)
    checked: dict[Opening, None] = {}
    for opening in openings:
        if opening not in checked:
            _check(opening, chess960=chess960)
            checked[opening] = None
    return openings


def _source(name: str, path: Path, plies: int, *, chess960: bool) -> _Source:
    if name == INITIAL:
        return [Opening("initial position")]
    if not name and chess960:
        return _Chess960Starts()
    path = path if name else SHIPPED_BOOK
    try:
        text = path.read_text("utf-8-sig", errors="replace")
    except OSError as error:
        raise OpeningError(f"cannot read the openings {path}: {error.strerror}") from None
    if "\0" in text:
        raise OpeningError(f"{path} is no text: unpack it, or save it as UTF-8")
    suffix = path.suffix.lower()
    if suffix == ".pgn":
        return _PgnGames(path, text, plies, chess960=chess960)
    if suffix in (".epd", ".fen", ".txt"):
        return _EpdLines(path, text, chess960=chess960)
    raise OpeningError(f"{path}: openings are .epd, .fen, .txt, .pgn or .bin (Polyglot) files")


def _in_order(source: _Source, settings: OpeningSettings, rounds: int, seed: int) -> list[Opening]:
    size = len(source)
    if settings.order == "sequential":
        return [source[(settings.start - 1 + round) % size] for round in range(rounds)]
    chosen: list[Opening] = []
    cycle = 0
    while len(chosen) < rounds:
        order = list(range(size))
        Random(f"openings {seed} {cycle}").shuffle(order)
        chosen += [source[index] for index in order[: rounds - len(chosen)]]
        cycle += 1
    return chosen


def _check(opening: Opening, *, chess960: bool) -> None:
    try:
        board = opening.board(chess960=chess960)
    except ValueError as error:
        raise OpeningError(f"opening {opening.name}: {error}") from None
    status = board.status()
    if status != chess.STATUS_VALID:
        problems = ", ".join(
            flag.name.lower().replace("_", " ") for flag in chess.Status if flag & status and flag.name
        )
        raise OpeningError(f"opening {opening.name}: {board.fen()} is not a legal position: {problems}")
    if board.is_game_over(claim_draw=False) or board.is_fifty_moves() or board.is_repetition():
        raise OpeningError(f"opening {opening.name}: the game is over in {board.fen()}")
    try:
        # The search plays it as well, and knows no null moves, and no move numbers beyond 9999.
        game = Game(opening.fen, chess960)
        for move in opening.moves:
            game.push_uci(move)
    except ValueError as error:
        raise OpeningError(f"opening {opening.name}: {error}") from None


class _EpdLines:
    """EPD or FEN, one position per line; blank lines and those that begin with # are left out."""

    def __init__(self, path: Path, text: str, *, chess960: bool) -> None:
        self._path = path
        self._chess960 = chess960
        self._lines = [
            (number, line.strip())
            for number, line in enumerate(text.splitlines(), 1)
            if line.strip() and not line.lstrip().startswith("#")
        ]

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, index: int) -> Opening:
        number, line = self._lines[index]
        source = f"{self._path.name}:{number}"
        fields = line.split()
        board = chess.Board(None, chess960=self._chess960)
        name = source
        try:
            if len(fields) == 6 and fields[4].isdigit() and fields[5].isdigit():
                board.set_fen(line)
            else:
                name = str(board.set_epd(line).get("id") or source)
        except (ValueError, IndexError) as error:
            raise OpeningError(f"{source}: {error}") from None
        _check_castling(board, source)
        return Opening(name, board.fen())


def _check_castling(board: chess.Board, source: str) -> None:
    """Rights that only Chess960 knows would be lost in silence. Raises OpeningError."""
    if board.chess960:
        return
    other = board.copy(stack=False)
    other.chess960 = True
    if other.clean_castling_rights() != board.clean_castling_rights():
        raise OpeningError(
            f"{source}: castling in {other.fen()} is that of Chess960, which is not played (--chess960)"
        )


class _QuietGameBuilder(chess.pgn.GameBuilder[chess.pgn.Game]):
    """Leaves what is wrong with a game in its `errors`, and says nothing about it on standard error."""

    def handle_error(self, error: Exception) -> None:
        self.game.errors.append(error)


class _PgnGames:
    """The main lines of the games of a PGN file. A game is parsed when it is asked for: books are large."""

    def __init__(self, path: Path, text: str, plies: int, *, chess960: bool) -> None:
        self._path = path
        self._plies = plies
        self._chess960 = chess960
        self._games: list[tuple[int, str]] = []
        start: int | None = None
        line = 1
        for begin in _game_offsets(text):
            if start is not None:
                self._games.append((line, text[start:begin]))
                line += text.count("\n", start, begin)
            else:
                line += text.count("\n", 0, begin)
            start = begin
        if start is not None:
            self._games.append((line, text[start:]))

    def __len__(self) -> int:
        return len(self._games)

    def __getitem__(self, index: int) -> Opening:
        line, text = self._games[index]
        source = f"{self._path.name}:{line}"
        game = chess.pgn.read_game(io.StringIO(text), Visitor=_QuietGameBuilder)
        if game is None:
            raise OpeningError(f"{source}: no game here")
        if game.errors:
            raise OpeningError(f"{source}: {game.errors[0]}")
        if type(game.board()) is not chess.Board or (game.board().chess960 and not self._chess960):
            raise OpeningError(f"{source}: this game is {game.headers.get('Variant')}, the match is not")
        headers = game.headers
        names = [headers.get(tag, "") for tag in ("ECO", "Opening", "Variation")]
        event = headers.get("Event", "?")
        name = " ".join(name for name in names if name and name != "?") or (event if event != "?" else source)
        board = game.board()
        board.chess960 = self._chess960
        start = None if board.fen() == chess.STARTING_FEN else board.fen()
        moves: list[str] = []
        for move in game.mainline_moves():
            if self._plies and len(moves) == self._plies:
                break
            moves.append(board.uci(move))
            board.push(move)
        return Opening(name, start, tuple(moves))


def _game_offsets(text: str) -> list[int]:
    """Where the games of a PGN text begin: at each tag line that does not follow another tag line."""
    offsets = []
    previous_line_end = -2
    for match in TAG_LINE.finditer(text):
        begin = match.start()
        if begin != previous_line_end + 1:
            offsets.append(begin)
        end = text.find("\n", begin)
        previous_line_end = end if end >= 0 else len(text)
    return offsets


class _Chess960Starts:
    """The 960 start positions, by Scharnagl's numbers."""

    def __len__(self) -> int:
        return 960

    def __getitem__(self, index: int) -> Opening:
        return Opening(f"Chess960 position {index}", chess.Board.from_chess960_pos(index).fen())


def _polyglot_lines(path: Path, rounds: int, plies: int, *, seed: int, chess960: bool) -> list[Opening]:
    """Random walks by the book's weights. A line that was had already is tried again, as long as that
    helps."""
    try:
        with chess.polyglot.open_reader(path) as reader:
            if not len(reader):
                raise OpeningError(f"{path} holds no openings")
            lines: list[Opening] = []
            seen: set[tuple[str, ...]] = set()
            exhausted = False
            for round in range(rounds):
                random = Random(f"openings {seed} {round}")
                moves = _walk(reader.weighted_choice, plies, random, chess960=chess960)
                for _ in range(0 if exhausted else POLYGLOT_ATTEMPTS):
                    if moves not in seen:
                        break
                    moves = _walk(reader.weighted_choice, plies, random, chess960=chess960)
                else:
                    exhausted = True
                if not moves:
                    raise OpeningError(f"{path} has no move in the initial position")
                seen.add(moves)
                lines.append(Opening(f"{path.name} line {round + 1}", None, moves))
            return lines
    except OpeningError:
        raise
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.strerror:
            raise OpeningError(f"cannot read the openings {path}: {error.strerror}") from None
        raise OpeningError(f"{path} is no Polyglot book: its size is no multiple of 16 bytes") from None


def _walk(
    choose: Callable[..., chess.polyglot.Entry], plies: int, random: Random, *, chess960: bool
) -> tuple[str, ...]:
    board = chess.Board(chess960=chess960)
    moves: list[str] = []
    while len(moves) < plies:
        try:
            move = choose(board, random=random).move
        except IndexError:
            break  # The book ends here.
        moves.append(board.uci(move))
        board.push(move)
    return tuple(moves)
