# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront play`: a game of a person against the engine, in a terminal."""

from __future__ import annotations

import argparse
import datetime
import errno
import signal
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from random import Random
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

from engine.games.record import Reason
from protocol.host.printing import printable
from protocol.host.processes import INTERRUPTED, interrupted_by_signals

if TYPE_CHECKING:
    import chess
    import chess.engine
    from rich.console import Console

    from engine.api import Analysis, Engine
    from engine.games.game_file import GameFile
    from engine.games.referee import Verdict
    from engine.options import Options
    from engine.search.report import Report

T = TypeVar("T")

HELP = "play against the engine in this terminal"
WORDS = {
    "e4, Nf3, O-O, e2e4": "play a move",
    "back": "take your last move back",
    "hint": "show the engine's move for you",
    "board": "show the board",
    "flip": "turn the board",
    "moves": "list the legal moves",
    "draw": "claim a draw by repetition, or offer one; the engine accepts if it is not better",
    "resign": "lose the game",
    "quit": "leave; the game is saved without a result",
    "help": "show these words",
}
MOST_NODES = 100_000
"""Nodes of a move with limited strength, whose level searches fewer."""

HINT_NODES = 200
"""Nodes of hints and of answers to draw offers, which have full strength."""

DRAW_LIMIT = 0.02
"""Largest q, of the engine's side, at which it accepts a draw."""

DEFAULT_PGN = Path("games.pgn")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from engine.option_flags import add_flags

    side = parser.add_mutually_exclusive_group()
    side.add_argument("--white", action="store_true", help="play White (default: drawn by lot)")
    side.add_argument("--black", action="store_true", help="play Black")
    parser.add_argument(
        "--nodes",
        type=int,
        help="play at full strength with this number of nodes a move (default: at the strength of --elo)",
    )
    parser.add_argument("--fen", help="position to begin with")
    parser.add_argument("--ascii", action="store_true", help="show pieces as letters, without colours")
    parser.add_argument(
        "--pgn",
        type=Path,
        default=DEFAULT_PGN,
        metavar="FILE",
        help=f"append the game to this file, after each move (default: {DEFAULT_PGN})",
    )
    add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    from engine.games.game_file import GameFile
    from engine.option_flags import options_of_arguments
    from engine.search.levels import level_of

    if sys.stdin is None or sys.stdout is None:
        return _refuse("standard input and output are needed, but one is closed", 2)
    if arguments.nodes is not None and arguments.nodes < 1:
        return _refuse(f"--nodes: {arguments.nodes} is not at least 1", 2)
    options = options_of_arguments(arguments)
    try:
        board = _start(arguments.fen, chess960=options.chess960)
    except ValueError as error:
        return _refuse(f"--fen: {error}", 2)
    if arguments.nodes is None and level_of(options) is None:
        options = options.changed(limit_strength=True)
    try:
        file = GameFile(arguments.pgn)
    except OSError as error:
        reason = f"cannot write {printable(str(arguments.pgn))}: {error.strerror}"
        return _refuse(f"{reason}. Choose another file with --pgn", 1)
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")
    with suppress(ImportError):
        import readline  # noqa: F401 - gives `input` line editing
    with closing(file), interrupted_by_signals():
        return _play(arguments, options, board, file)


def _play(arguments: argparse.Namespace, options: Options, board: chess.Board, file: GameFile) -> int:
    from rich.console import Console

    from engine.api import Engine, EngineError

    drawn = not arguments.white and not arguments.black
    person = Random().random() < 0.5 if drawn else bool(arguments.white)
    name = opponent(options, arguments.nodes)
    game = TerminalGame(
        board, person, file, opponent=name, console=Console(highlight=False), letters=arguments.ascii
    )
    status = 0
    try:
        print("The engine starts …", file=sys.stderr)
        with Engine(**{name: getattr(options, name) for name in options.__slots__}) as engine:
            colour = f"{'White' if person else 'Black'}{', drawn by lot,' if drawn else ''}"
            print(f"You play {colour} against {name}.")
            game.play(engine, arguments.nodes or MOST_NODES)
    except KeyboardInterrupt:
        status = INTERRUPTED
    except OSError as error:
        if error.errno not in (errno.EIO, errno.EPIPE):
            raise
        status = INTERRUPTED  # The terminal or the reader of a pipe is gone.
    except EngineError as error:
        status = _refuse(str(error), 1)
    finally:
        status = game.conclude() or status
    return status


def _refuse(reason: str, status: int) -> int:
    """Print why the command ends, and return its exit status."""
    print(f"wavefront play: {reason}", file=sys.stderr)
    return status


def _start(fen: str | None, *, chess960: bool) -> chess.Board:
    """Return the board to begin with. Raises ValueError for a position that cannot be played."""
    import chess

    from engine.games.referee import end_by_rules
    from engine.search.fen import read_fen

    if fen is None or fen == "startpos":
        return chess.Board(chess960=chess960)
    game, corrections = read_fen(fen, chess960)
    if corrections:
        print(f"wavefront play: --fen corrected: {'; '.join(corrections)}", file=sys.stderr)
    if end := end_by_rules(game):
        raise ValueError(f"the game is over in {game.fen()}: {end.reason}")
    return chess.Board(game.fen(), chess960=chess960)


def opponent(options: Options, nodes: int | None) -> str:
    """Return the engine's name in the PGN."""
    if nodes is not None:
        return f"Wavefront, {nodes} nodes"
    from engine.search.levels import level_of

    level = level_of(options)
    elo = None if level is None else level.elo
    return "Wavefront, HumanPlay" if elo is None else f"Wavefront, Elo {elo}"


@dataclass(frozen=True, slots=True)
class End:
    """The end of a game. reason: for the PGN and the terminal."""

    result: str
    reason: str


@dataclass(frozen=True, slots=True)
class MoveNote:
    """What the PGN tells about a move. seconds: thinking time. score: the engine's, None for the person's."""

    seconds: float
    score: chess.engine.PovScore | None = None
    depth: int | None = None


class TerminalGame:
    """A game in progress, which is in its file after each move. opponent: the engine's name in the PGN."""

    def __init__(
        self,
        board: chess.Board,
        person: chess.Color,
        file: GameFile,
        *,
        opponent: str,
        console: Console,
        letters: bool,
    ) -> None:
        from engine.games.board_view import look_of

        self.board = board
        self.end: End | None = None
        self._opponent = opponent
        self._person = person
        self._file = file
        self._path = printable(str(file.path))
        self._unsaved = False
        self._console = console
        self._look = look_of(console, letters=letters)
        self._view = person
        self._notes: list[MoveNote] = []
        self._start = board.copy()

    def play(self, engine: Engine, nodes: int) -> None:
        """Play to the end of the game, or of the input. Raises KeyboardInterrupt and EngineError."""
        self._engine, self._nodes = engine, nodes
        print("Your moves: e4, Nf3, O-O. Other words: back, hint, draw, resign, quit, help.")
        self.show()
        while self.end is None:
            if self.board.turn != self._person:
                self._answer()
            elif not self._ask():
                break

    def show(self) -> None:
        """Print the board from the viewer's side, and the last move."""
        from engine.games.board_view import board_text

        print()
        self._console.print(board_text(self.board, self._view, self._look))
        if self.board.move_stack:
            print(f"\nlast move: {self._last_move()}")
        print()

    def pgn(self) -> str:
        """Return the game as PGN, with a final empty line."""
        import chess
        import chess.pgn

        game = chess.pgn.Game.from_board(self.board)
        names = {self._person: "Person", not self._person: self._opponent}
        game.headers["Event"] = "Game in a terminal"
        game.headers["Date"] = datetime.datetime.now().astimezone().strftime("%Y.%m.%d")
        game.headers["White"], game.headers["Black"] = names[chess.WHITE], names[chess.BLACK]
        game.headers["Result"] = self.end.result if self.end else "*"
        game.headers["Termination"] = "normal" if self.end else "unterminated"
        for node, note in zip(game.mainline(), self._notes, strict=False):
            node.set_eval(note.score, note.depth)
            node.set_emt(note.seconds)
        if self.end:
            last = game.end()
            last.comment = f"{last.comment} {self.end.reason}".strip()
        return f"{game}\n\n"

    def conclude(self) -> int:
        """Save the game and say where it is, or print it if it cannot be saved. Return the exit status.

        No signal interrupts this.
        """
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), signal.SIG_IGN)
        if not self.board.move_stack:
            return 0
        self._save()
        try:
            if self.end:
                print(f"{self.end.result}, by {self.end.reason}.")
            if self._unsaved:
                print(f"This is the game, which is not in {self._path}:\n\n{self.pgn()}", end="", flush=True)
            else:
                print(f"The game is in {self._path}.", flush=True)
        except OSError:  # The terminal is gone.
            sys.stdout = None
        return 1 if self._unsaved else 0

    def _ask(self) -> bool:
        """Obey a word of the person. Return False at the end of the input, or if the person leaves."""
        if self._verdict():
            print("The position has occurred three times: `draw` claims a draw.")
        began = perf_counter()
        try:
            word = input(f"{self._number()} ").strip()
        except (EOFError, KeyboardInterrupt) as error:
            print()
            if isinstance(error, KeyboardInterrupt):
                raise
            return False
        handlers: dict[str, Callable[[], None]] = {
            "back": self._take_back,
            "hint": self._hint,
            "board": self.show,
            "flip": self._flip,
            "draw": self._offer_draw,
            "resign": self._resign,
            "moves": lambda: print(", ".join(map(self.board.san, self.board.legal_moves))),
            "help": lambda: print("\n".join(f"  {name:22} {meaning}" for name, meaning in WORDS.items())),
        }
        if word.lower() in ("quit", "exit"):
            return False
        if word.lower() in handlers:
            handlers[word.lower()]()
        elif word:
            self._move(word, perf_counter() - began)
        return True

    def _move(self, word: str, seconds: float) -> None:
        from engine.games.typed_moves import parsed_move

        move = parsed_move(self.board, word)
        if move is None:
            print(f"{word[:20]!a} is not a legal move here. `moves` lists them, `help` the other words.")
        else:
            self._push(move, MoveNote(seconds))

    def _push(self, move: chess.Move, note: MoveNote) -> None:
        self.board.push(move)
        self._notes.append(note)
        self._save()

    def _save(self) -> None:
        """Judge the position, and write the game to its file. The next move retries a failed write."""
        verdict = self._verdict()
        if verdict is not None and not self._to_be_claimed(verdict):
            self.end = End(verdict.result, verdict.reason)
        try:
            self._file.write(self.pgn())
            self._unsaved = False
        except OSError as error:
            if not self._unsaved:
                reason = f"cannot write {self._path}: {error.strerror}"
                _refuse(f"{reason}. The game will be printed at its end", 1)
            self._unsaved = True

    def _verdict(self) -> Verdict | None:
        from engine.games.referee import end_by_rules, game_of

        return end_by_rules(game_of(self.board))

    def _to_be_claimed(self, verdict: Verdict) -> bool:
        """Return whether the person decides about the draw: by the laws of chess only the fifth occurrence of
        a position ends a game without a claim."""
        return verdict.reason is Reason.THREEFOLD_REPETITION and not self.board.is_fivefold_repetition()

    def _answer(self) -> None:
        self._tell_position()
        report = self._searched(lambda: self._engine.play(nodes=self._nodes)).info
        assert report.best_move is not None
        number, move = self._number(), self.board.parse_uci(report.best_move)
        print(f"{number} {self.board.san(move)}")
        self._push(move, _note(report, self.board.turn))
        self.show()

    def _searched(self, search: Callable[[], T]) -> T:
        """Return the result of a search. Raises KeyboardInterrupt if it was interrupted, and EngineError."""
        from protocol.host.interruptible import interruptible

        found, interrupted = interruptible(search, self._engine.stop)
        if interrupted:
            raise KeyboardInterrupt
        return found

    def _number(self) -> str:
        return f"{self.board.fullmove_number}{'.' if self.board.turn else '...'}"

    def _last_move(self) -> str:
        before = self.board.copy()
        move = before.pop()
        return f"{before.fullmove_number}{'.' if before.turn else '...'} {before.san(move)}"

    def _tell_position(self) -> None:
        moves = [move.uci() for move in self.board.move_stack]
        self._engine.position(self._start.fen(), moves, chess960=self._start.chess960)

    def _analysis(self) -> Analysis:
        self._tell_position()
        return self._searched(lambda: self._engine.analyse(nodes=HINT_NODES))

    def _take_back(self) -> None:
        """Take back the engine's answer and the move before."""
        if len(self._notes) < 2:
            print("There is no move of yours to take back.")
            return
        for _ in range(2):
            self.board.pop()
            self._notes.pop()
        self._save()
        self.show()

    def _hint(self) -> None:
        report = self._analysis()
        if report.best_move is not None:
            print(f"The engine would play {self.board.san(self.board.parse_uci(report.best_move))}.")

    def _flip(self) -> None:
        self._view = not self._view
        self.show()

    def _offer_draw(self) -> None:
        if verdict := self._verdict():
            self.end = End(verdict.result, verdict.reason)
            return
        report = self._analysis()
        if report.lines and -report.lines[0].q <= DRAW_LIMIT:
            self.end = End("1/2-1/2", "agreement")
        else:
            print("The engine plays on.")

    def _resign(self) -> None:
        self.end = End("0-1" if self._person else "1-0", "resignation")


def _note(report: Report, mover: chess.Color) -> MoveNote:
    """Return what the PGN tells about the engine's move. mover: the engine's opponent, who is to move."""
    import chess.engine

    line = next((line for line in report.lines if line.moves[:1] == (report.best_move,)), None)
    if line is None:
        return MoveNote(report.seconds)
    score = chess.engine.Cp(line.centipawns()) if line.mate is None else chess.engine.Mate(line.mate)
    return MoveNote(report.seconds, chess.engine.PovScore(score, not mover), report.depth)
