# SPDX-License-Identifier: GPL-3.0-or-later
"""Openings from EPD, PGN and Polyglot files, the included book, or the 960 start positions.

A round's opening depends only on the settings and the round's number. So a resumed match continues with the
same openings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any, Literal, Protocol, get_args

import chess
import chess.polyglot

from engine._core import Game
from engine.apps.games.epd import position_lines, read_epd
from engine.apps.games.identity import file_identity
from engine.apps.games.pgn_reading import PgnGames, main_fault
from engine.apps.games.text import STANDARD_INPUT, TextError, read_text
from protocol.common.folders import expanded
from protocol.common.printing import ReportedError, reason
from protocol.common.settings.spec import UNREACHED, setting

Order = Literal["random", "sequential"]

SHIPPED_BOOK = Path(__file__).with_name("openings.lines")
"""2000 openings of 6 to 10 plies that a strong engine evaluates as balanced: a name and UCI moves a line."""

INITIAL = "startpos"
"""Name that replaces a file: the initial position only."""

POLYGLOT_PLIES = 8
"""Default plies from a Polyglot book."""

POLYGLOT_ATTEMPTS = 100
"""Maximum random walks through a Polyglot book to find a new line."""

REPORTED = 5
"""Maximum unusable openings reported one by one."""


class OpeningError(ReportedError, ValueError):
    """Openings are unreadable or unplayable. The message names file and line."""


@dataclass(frozen=True, slots=True)
class Opening:
    """The start of a game.

    fen: first position; None is the initial one. moves: played from there, in UCI notation (in Chess960
    castling is king takes rook). name: for people."""

    name: str
    fen: str | None = None
    moves: tuple[str, ...] = ()

    def board(self, *, chess960: bool) -> chess.Board:
        """Return the board after the moves, with a move stack. Raises ValueError for an illegal move."""
        board = chess.Board(self.fen or chess.STARTING_FEN, chess960=chess960)
        for move in self.moves:
            board.push_uci(move)
        return board


@dataclass(frozen=True, slots=True)
class OpeningSettings:
    """The choice of openings.

    file: EPD (or FEN lines), PGN or Polyglot (.bin); "" is the included book, in Chess960 the 960 start
    positions; "startpos" is the initial position only. plies: maximum plies of a line; 0 plays all. start:
    first opening in sequential order, from 1."""

    file: str = setting("")
    order: Order = setting("random", choices=get_args(Order))
    plies: int = setting(0, high=1000)
    start: int = setting(1, low=1, high=UNREACHED)

    def identity(self) -> dict[str, Any]:
        """Return the identity of the openings as JSON data. A file is identified by its content."""
        file = self.file if self.file == INITIAL else file_identity(self.file)
        return asdict(self) | {"file": file}


class _Source(Protocol):
    """A numbered collection of openings."""

    def __len__(self) -> int: ...

    def place(self, index: int) -> str:
        """Return file and line of an opening."""

    def about(self, index: int) -> str:
        """Return what else identifies an opening, for the end of a message."""
        return ""

    def opening(self, index: int) -> Opening:
        """Return an opening. Raises ValueError with the reason, without the place."""


def read_openings(
    settings: OpeningSettings,
    rounds: int,
    *,
    seed: int,
    chess960: bool = False,
    report: Callable[[str], None] = lambda text: None,
) -> list[Opening]:
    """Return one opening per round. They repeat if there are fewer openings than rounds.

    Openings that are illegal or end the game are skipped. report: called with file, line and reason of each
    skipped opening. Raises OpeningError if no opening is usable.
    """
    path = expanded(settings.file)
    if path.suffix.lower() == ".bin":
        plies = settings.plies or POLYGLOT_PLIES
        lines = _polyglot_lines(path, rounds, plies, seed=seed, chess960=chess960)
        for line in dict.fromkeys(lines):
            try:
                _check(line, chess960=chess960)
            except ValueError as error:
                raise OpeningError(f"{line.name}: {error}") from None
        return lines
    source = _source(settings.file, path, settings.plies, report, chess960=chess960)
    if not len(source):
        raise OpeningError(f"{path} holds no openings")
    usable = _Usable(path, source, report, chess960=chess960)
    order = _order(settings, len(source), seed)
    openings: list[Opening] = []
    while len(openings) < rounds:
        opening = usable.opening(next(order))
        if opening is not None:
            openings.append(opening)
    usable.report_rest()
    return openings


def _source(name: str, path: Path, plies: int, report: Callable[[str], None], *, chess960: bool) -> _Source:
    if name == INITIAL:
        return _Listed(1, lambda index: Opening("initial position"))
    if not name and chess960:
        return _Listed(960, _chess960_start)
    if not name:
        lines = [line.split() for line in SHIPPED_BOOK.read_text("ascii").splitlines()]
        return _Listed(
            len(lines), lambda index: Opening(lines[index][0], None, tuple(lines[index][1:][: plies or None]))
        )
    if path == STANDARD_INPUT:
        raise OpeningError("openings are not read from standard input: name a file")
    try:
        text = read_text(path, report)
    except OSError as error:
        raise OpeningError(f"cannot read the openings {path}: {error.strerror}") from None
    except TextError as error:
        raise OpeningError(str(error)) from None
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    if suffix == ".pgn":
        return _PgnLines(path.name, text, plies, chess960=chess960)
    if suffix in (".epd", ".fen", ".txt"):
        return _EpdPositions(path.name, text, chess960=chess960)
    raise OpeningError(
        f"{path}: openings are .epd, .fen, .txt or .pgn files, also with .gz, or .bin files (Polyglot)"
    )


def _order(settings: OpeningSettings, size: int, seed: int) -> Iterator[int]:
    """Yield numbers of openings indefinitely; each comes once before any repeats."""
    cycle = 0
    while True:
        if settings.order == "sequential":
            yield from ((settings.start - 1 + index) % size for index in range(size))
        else:
            shuffled = list(range(size))
            Random(f"openings {seed} {cycle}").shuffle(shuffled)
            yield from shuffled
        cycle += 1


class _Usable:
    """The playable openings of a source. Each is read and checked once."""

    def __init__(self, path: Path, source: _Source, report: Callable[[str], None], *, chess960: bool) -> None:
        self._path, self._source, self._report = path, source, report
        self._chess960 = chess960
        self._checked: dict[int, Opening | None] = {}
        self._faults: list[str] = []

    def opening(self, index: int) -> Opening | None:
        """Return an opening, or None if it is skipped. Raises OpeningError if all are skipped."""
        if index not in self._checked:
            self._checked[index] = self._read(index)
        return self._checked[index]

    def report_rest(self) -> None:
        """Report the number of further skipped openings."""
        if len(self._faults) > REPORTED:
            self._report(f"opening skipped: so are {len(self._faults) - REPORTED} more in {self._path}")

    def _read(self, index: int) -> Opening | None:
        try:
            opening = self._source.opening(index)
            _check(opening, chess960=self._chess960)
        except Exception as error:  # The other openings are read, whatever it is.
            self._faults.append(f"{self._source.place(index)}: {reason(error)}{self._source.about(index)}")
        else:
            return opening
        if len(self._faults) == len(self._source):
            raise OpeningError(f"{self._path} holds no usable openings: {'; '.join(self._faults[:REPORTED])}")
        if len(self._faults) <= REPORTED:
            self._report(f"opening skipped: {self._faults[-1]}")
        return None


def _check(opening: Opening, *, chess960: bool) -> None:
    """Raise ValueError for an opening that is unplayable or ends the game."""
    board = opening.board(chess960=chess960)
    status = board.status()
    if status != chess.STATUS_VALID:
        problems = ", ".join(
            flag.name.lower().replace("_", " ") for flag in chess.Status if flag & status and flag.name
        )
        raise ValueError(f"{board.fen()} is not a legal position: {problems}")
    if board.is_game_over(claim_draw=False) or board.is_fifty_moves() or board.is_repetition():
        raise ValueError(f"the game is over in {board.fen()}")
    # The core must accept it, too: it has no null moves, and no move numbers beyond 9999.
    game = Game(opening.fen, chess960)
    for move in opening.moves:
        game.push_uci(move)


@dataclass(frozen=True, slots=True)
class _Listed(_Source):
    """Openings of no file, whose names are their places. make: returns one by its number."""

    size: int
    make: Callable[[int], Opening]

    def __len__(self) -> int:
        return self.size

    def place(self, index: int) -> str:
        return self.make(index).name

    def opening(self, index: int) -> Opening:
        return self.make(index)


class _EpdPositions(_Source):
    """The positions of an EPD or FEN file."""

    def __init__(self, file: str, text: str, *, chess960: bool) -> None:
        self._file = file
        self._chess960 = chess960
        self._lines = list(position_lines(text))

    def __len__(self) -> int:
        return len(self._lines)

    def place(self, index: int) -> str:
        return f"{self._file}:{self._lines[index][0]}"

    def opening(self, index: int) -> Opening:
        epd = read_epd(self._lines[index][1])
        board = chess.Board(epd.fen, chess960=self._chess960)
        _check_castling(board)
        return Opening(epd.operations.get("id") or self.place(index), board.fen())


def _check_castling(board: chess.Board) -> None:
    """Raise ValueError for Chess960 castling rights, which would be lost silently."""
    if board.chess960:
        return
    other = board.copy(stack=False)
    other.chess960 = True
    if other.clean_castling_rights() != board.clean_castling_rights():
        raise ValueError(f"castling in {other.fen()} is that of Chess960: set chess960 to play it")


class _PgnLines(_Source):
    """The main lines of the games of a PGN file."""

    def __init__(self, file: str, text: str, plies: int, *, chess960: bool) -> None:
        self._file = file
        self._plies = plies
        self._chess960 = chess960
        self._games = PgnGames(text)

    def __len__(self) -> int:
        return len(self._games)

    def place(self, index: int) -> str:
        return f"{self._file}:{self._games[index].line}"

    def about(self, index: int) -> str:
        return f" (game {index + 1}, {self._games[index].players})"

    def opening(self, index: int) -> Opening:
        game = self._games[index].read()
        if fault := main_fault(game):
            raise fault
        headers, board = game.headers, game.board()
        if board.chess960 and not self._chess960:
            raise ValueError(f"this game is {headers.get('Variant', 'Chess960')}, which is not played here")
        if not game.variations and "FEN" not in headers:
            raise ValueError("the game has neither moves nor a FEN tag")
        names = [headers.get(tag, "") for tag in ("ECO", "Opening", "Variation")]
        event = headers.get("Event", "?")
        name = " ".join(name for name in names if name and name != "?") or event
        board.chess960 = self._chess960
        start = None if board.fen() == chess.STARTING_FEN else board.fen()
        moves: list[str] = []
        for move in game.mainline_moves():
            if self._plies and len(moves) == self._plies:
                break
            moves.append(board.uci(move))
            board.push(move)
        return Opening(name if name != "?" else self.place(index), start, tuple(moves))


def _chess960_start(index: int) -> Opening:
    """Return a start position of Chess960 by Scharnagl's number."""
    return Opening(f"Chess960 position {index}", chess.Board.from_chess960_pos(index).fen())


def _polyglot_lines(path: Path, rounds: int, plies: int, *, seed: int, chess960: bool) -> list[Opening]:
    """Return random walks weighted by the book. Repeated lines are drawn again until that fails."""
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
