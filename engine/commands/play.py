# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront play`: a game of a person against the engine, in a terminal."""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from io import TextIOWrapper
from random import Random
from time import perf_counter
from typing import TYPE_CHECKING, TypeVar

from engine.options.flags import engine_flags, options_of_arguments
from protocol.common.commands import Declared
from protocol.common.printing import printable
from protocol.common.processes import INTERRUPTED, ending_signals, interrupted_by_signals, own_input

if TYPE_CHECKING:
    import chess
    from rich.console import Console

    from engine.api import Analysis, Engine
    from engine.apps.games.casual import CasualGame, MoveNote
    from engine.apps.games.game_file import GameFile
    from engine.options import Options

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


ARGUMENTS: Declared = {
    "": {"--white": "play White (default: drawn by lot)", "--black": "play Black"},
    "--nodes NODES:int": "play at full strength with this number of nodes a move (default: at the strength "
    "of --elo)",
    "--fen FEN": "position to begin with",
    "--ascii": "show pieces as letters, without colours",
    "--pgn FILE:Path = games.pgn": "append the game to this file, after each move (default: games.pgn)",
    **engine_flags(),
}


def run(arguments: argparse.Namespace) -> int:
    from engine.apps.games.game_file import GameFile
    from engine.search.strength.levels import level_of

    if sys.stdin is None or sys.stdout is None:
        return _refuse("standard input and output are needed, but one is closed", 2)
    if arguments.nodes is not None and arguments.nodes < 1:
        return _refuse(f"--nodes: {arguments.nodes} is not at least 1", 2)
    options = options_of_arguments(arguments)
    try:
        game = _start(arguments.fen, chess960=options.chess960)
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
        if sys.stdin.isatty():
            sys.stdin.reconfigure(errors="replace")
        else:
            sys.stdin = os.fdopen(own_input(), encoding="utf-8", errors="replace")
    with suppress(ImportError):
        import readline  # noqa: F401 - gives `input` line editing
    with closing(file), interrupted_by_signals():
        return _play(arguments, options, game, file)


def _play(arguments: argparse.Namespace, options: Options, casual: CasualGame, file: GameFile) -> int:
    from rich.console import Console

    from engine.api import Engine, EngineError
    from engine.apps.games.casual import MOST_NODES, opponent
    from protocol.common.published import imitators

    drawn = not arguments.white and not arguments.black
    person = Random().random() < 0.5 if drawn else bool(arguments.white)
    name = opponent(options, arguments.nodes)
    game = TerminalGame(
        casual, person, file, opponent=name, console=Console(highlight=False), letters=arguments.ascii
    )
    status = 0
    try:
        print("The engine starts …", file=sys.stderr)
        with Engine(**{name: getattr(options, name) for name in options.__slots__}) as engine:
            colour = f"{'White' if person else 'Black'}{', drawn by lot,' if drawn else ''}"
            print(f"You play {colour} against {name}.")
            if options.limit_strength and not imitators():
                print("`wavefront get maia-1500` adds a network that imitates people.")
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


def _start(fen: str | None, *, chess960: bool) -> CasualGame:
    """Return the game to begin. Raises ValueError for a position that cannot be played."""
    from engine.apps.games.casual import CasualGame, start_of

    board, corrections = start_of(fen, chess960=chess960)
    if corrections:
        print(f"wavefront play: --fen corrected: {'; '.join(corrections)}", file=sys.stderr)
    game = CasualGame(board)
    if end := game.verdict():
        raise ValueError(f"the game is over in {board.fen()}: {end.reason}")
    return game


class TerminalGame:
    """A game in progress, which is in its file after each move. opponent: the engine's name in the PGN."""

    def __init__(
        self,
        game: CasualGame,
        person: chess.Color,
        file: GameFile,
        *,
        opponent: str,
        console: Console,
        letters: bool,
    ) -> None:
        from engine.apps.games.board_view import look_of

        self.game = game
        self.board = game.board
        self._opponent = opponent
        self._person = person
        self._file = file
        self._path = printable(str(file.path))
        self._unsaved = False
        self._console = console
        self._look = look_of(console, letters=letters)
        self._view = person
        self._start = game.board.copy()

    def play(self, engine: Engine, nodes: int) -> None:
        """Play to the end of the game, or of the input. Raises KeyboardInterrupt and EngineError."""
        self._engine, self._nodes = engine, nodes
        print("Your moves: e4, Nf3, O-O. Other words: back, hint, draw, resign, quit, help.")
        self.show()
        while self.game.end is None:
            if self.board.turn != self._person:
                self._answer()
            elif not self._ask():
                break

    def show(self) -> None:
        """Print the board from the viewer's side, and the last move."""
        from engine.apps.games.board_view import board_text

        print()
        self._console.print(board_text(self.board, self._view, self._look))
        if self.board.move_stack:
            before = self.board.copy()
            move = before.pop()
            number = f"{before.fullmove_number}{'.' if before.turn else '...'}"
            print(f"\nlast move: {number} {before.san(move)}")
        print()

    def pgn(self) -> str:
        """Return the game as PGN, with a final empty line."""
        return self.game.pgn(self._person, self._opponent, "Game in a terminal")

    def conclude(self) -> int:
        """Save the game and say where it is, or print it if it cannot be saved. Return the exit status.

        No signal interrupts this.
        """
        for number in ending_signals():
            signal.signal(number, signal.SIG_IGN)
        if not self.board.move_stack:
            return 0
        self._save()
        try:
            if end := self.game.end:
                print(f"{end.result}, by {end.reason}.")
            if self._unsaved:
                print(f"This is the game, which is not in {self._path}:\n\n{self.pgn()}", end="", flush=True)
            else:
                print(f"The game is in {self._path}.", flush=True)
        except OSError:  # The terminal is gone.
            sys.stdout = None
        return 1 if self._unsaved else 0

    def _ask(self) -> bool:
        """Obey a word of the person. Return False at the end of the input, or if the person leaves."""
        if self.game.verdict():
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
        from engine.apps.games.casual import MoveNote
        from engine.apps.games.typed_moves import parsed_move

        move = parsed_move(self.board, word)
        if move is None:
            print(f"{word[:20]!a} is not a legal move here. `moves` lists them, `help` the other words.")
        else:
            self._push(move, MoveNote(seconds))

    def _push(self, move: chess.Move, note: MoveNote) -> None:
        self.game.push(move, note)
        self._save()

    def _save(self) -> None:
        """Write the game to its file. The next move retries a failed write."""
        try:
            self._file.write(self.pgn())
            self._unsaved = False
        except OSError as error:
            if not self._unsaved:
                reason = f"cannot write {self._path}: {error.strerror}"
                _refuse(f"{reason}. The game will be printed at its end", 1)
            self._unsaved = True

    def _answer(self) -> None:
        from engine.apps.games.casual import MoveNote

        self._tell_position()
        report = self._searched(lambda: self._engine.play(nodes=self._nodes)).info
        assert report.best_move is not None
        number, move = self._number(), self.board.parse_uci(report.best_move)
        print(f"{number} {self.board.san(move)}")
        self._push(move, MoveNote.of(report, self.board.turn))
        self.show()

    def _searched(self, search: Callable[[], T]) -> T:
        """Return the result of a search. Raises KeyboardInterrupt if it was interrupted, and EngineError."""
        from protocol.common.interruptible import interruptible

        found, interrupted = interruptible(search, self._engine.stop)
        if interrupted:
            raise KeyboardInterrupt
        return found

    def _number(self) -> str:
        return f"{self.board.fullmove_number}{'.' if self.board.turn else '...'}"

    def _tell_position(self) -> None:
        moves = [move.uci() for move in self.board.move_stack]
        self._engine.position(self._start.fen(), moves, chess960=self._start.chess960)

    def _analysis(self) -> Analysis:
        from engine.apps.games.casual import HINT_NODES

        self._tell_position()
        return self._searched(lambda: self._engine.analyse(nodes=HINT_NODES))

    def _take_back(self) -> None:
        """Take back the engine's answer and the move before."""
        if not self.game.take_back():
            print("There is no move of yours to take back.")
            return
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
        from engine.apps.games.casual import DRAW_LIMIT, End

        if self.game.claim():
            return
        report = self._analysis()
        if report.lines and -report.lines[0].q <= DRAW_LIMIT:
            self.game.end = End("1/2-1/2", "agreement")
        else:
            print("The engine plays on.")

    def _resign(self) -> None:
        self.game.resign(self._person)
