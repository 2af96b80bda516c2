# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront play`: a game of a person against the engine, in a terminal."""

from __future__ import annotations

import argparse
import datetime
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import chess

    from engine.api import Analysis, Engine
    from engine.options import Options

HELP = "play against the engine in this terminal"
WORDS = {
    "e4, Nf3, O-O, e2e4": "play a move",
    "back": "take your last move back",
    "hint": "show the engine's move for you",
    "flip": "turn the board",
    "moves": "list the legal moves",
    "draw": "offer a draw; the engine accepts if it is not better",
    "resign": "end the game",
    "help": "show these words",
}
MOST_NODES = 100_000
"""Nodes of a move with limited strength, whose level searches fewer."""

HINT_NODES = 200
"""Nodes of hints and of answers to draw offers, which have full strength."""

DRAW_LIMIT = 0.02
"""Largest q, of the engine's side, at which it accepts a draw."""


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
    parser.add_argument("--ascii", action="store_true", help="show pieces as letters")
    parser.add_argument(
        "--pgn", type=Path, metavar="FILE", help="append the game to this file (default: games.pgn)"
    )
    add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    import chess

    from engine.api import Engine, EvaluatorError, PositionError
    from engine.option_flags import options_of_arguments
    from engine.search.levels import level_of

    if arguments.nodes is not None and arguments.nodes < 1:
        print("wavefront play: --nodes is at least 1", file=sys.stderr)
        return 2
    try:
        board = chess.Board(arguments.fen) if arguments.fen else chess.Board()
    except ValueError as error:
        print(f"wavefront play: --fen: {error}", file=sys.stderr)
        return 2
    person = (
        chess.WHITE if arguments.white or (not arguments.black and Random().random() < 0.5) else chess.BLACK
    )
    options = options_of_arguments(arguments)
    if arguments.nodes is None and level_of(options) is None:
        options = options.changed(limit_strength=True)
    try:
        print("The engine starts …", file=sys.stderr)
        with Engine(**{name: getattr(options, name) for name in options.__slots__}) as engine:
            nodes = arguments.nodes or MOST_NODES
            name = opponent(options, arguments.nodes)
            game = TerminalGame(engine, board, person, nodes, opponent=name, ascii_only=arguments.ascii)
            print(f"You play {'White' if person else 'Black'} against {name}.")
            game.play()
    except (EvaluatorError, PositionError) as error:
        print(f"wavefront play: {error}", file=sys.stderr)
        return 1
    if game.board.move_stack:
        path = arguments.pgn or Path("games.pgn")
        game.save(path)
        print(f"The game is in {path}.")
    return 0


def opponent(options: Options, nodes: int | None) -> str:
    """Return the engine's name in the PGN."""
    if nodes is not None:
        return f"Wavefront, {nodes} nodes"
    from engine.search.levels import level_of

    level = level_of(options)
    elo = None if level is None else level.elo
    return "Wavefront, HumanPlay" if elo is None else f"Wavefront, Elo {elo}"


class TerminalGame:
    """A game in progress. opponent: the engine's name in the PGN. result: of a game that ended by agreement
    or resignation; else None."""

    def __init__(
        self,
        engine: Engine,
        board: chess.Board,
        person: chess.Color,
        nodes: int,
        *,
        opponent: str,
        ascii_only: bool,
    ) -> None:
        self.board = board
        self.opponent = opponent
        self.result: str | None = None
        self._engine = engine
        self._person = person
        self._nodes = nodes
        self._ascii = ascii_only
        self._view = person
        self._start = board.copy()

    def play(self) -> None:
        """Play to the end of the game, or of the input."""
        print("Your moves: e4, Nf3, O-O. Other words: back, hint, draw, resign, help.")
        self.show()
        while self.result is None and not self.board.is_game_over(claim_draw=True):
            if self.board.turn == self._person:
                try:
                    word = input(f"{self.board.fullmove_number}{'.' if self.board.turn else '...'} ").strip()
                except (EOFError, KeyboardInterrupt):
                    print()
                    break
                self._obey(word)
            else:
                self._answer()
        self._say_result()

    def show(self) -> None:
        """Print the board from the person's side."""
        rows = self.board.unicode(
            invert_color=not self._ascii, orientation=self._view, empty_square="·"
        ).splitlines()
        if self._ascii:
            rows = str(self.board if self._view else self.board.transform(_turned)).splitlines()
        numbers = range(8, 0, -1) if self._view else range(1, 9)
        files = "a b c d e f g h" if self._view else "h g f e d c b a"
        print()
        for number, row in zip(numbers, rows, strict=True):
            print(f" {number}  {row}")
        print(f"    {files}\n")

    def save(self, path: Path) -> None:
        """Append the game to a PGN file. Raises OSError."""
        import chess
        import chess.pgn

        game = chess.pgn.Game.from_board(self.board)
        names = {self._person: "Person", not self._person: self.opponent}
        game.headers["Event"] = "Game in a terminal"
        game.headers["Date"] = datetime.datetime.now().astimezone().strftime("%Y.%m.%d")
        game.headers["White"], game.headers["Black"] = names[chess.WHITE], names[chess.BLACK]
        game.headers["Result"] = self.result or self.board.result(claim_draw=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{game}\n\n")

    def _obey(self, word: str) -> None:
        handlers: dict[str, Callable[[], None]] = {
            "back": self._take_back,
            "hint": self._hint,
            "flip": self._flip,
            "draw": self._offer_draw,
            "resign": self._resign,
            "moves": lambda: print(", ".join(map(self.board.san, self.board.legal_moves))),
            "help": lambda: print("\n".join(f"  {name:22} {meaning}" for name, meaning in WORDS.items())),
        }
        if word.lower() in handlers:
            handlers[word.lower()]()
        elif word:
            self._move(word)

    def _move(self, word: str) -> None:
        try:
            move = self.board.parse_san(word)
        except ValueError:
            try:
                move = self.board.parse_uci(word.lower())
            except ValueError:
                print(f"{word[:20]!a} is not a legal move here. `moves` lists them, `help` the other words.")
                return
        self.board.push(move)

    def _answer(self) -> None:
        self._tell_position()
        report = self._engine.play(nodes=self._nodes)
        if report.best_move is None:
            return
        move = self.board.parse_uci(report.best_move)
        number = f"{self.board.fullmove_number}{'.' if self.board.turn else '...'}"
        print(f"{number} {self.board.san(move)}")
        self.board.push(move)
        self.show()

    def _tell_position(self) -> None:
        self._engine.position(self._start.fen(), [move.uci() for move in self.board.move_stack])

    def _analysis(self) -> Analysis:
        self._tell_position()
        return self._engine.analyse(nodes=HINT_NODES)

    def _take_back(self) -> None:
        """Take back the engine's answer and the move before."""
        if len(self.board.move_stack) < 2:
            print("There is no move of yours to take back.")
            return
        self.board.pop()
        self.board.pop()
        self.show()

    def _hint(self) -> None:
        report = self._analysis()
        if report.best_move is not None:
            print(f"The engine would play {self.board.san(self.board.parse_uci(report.best_move))}.")

    def _flip(self) -> None:
        self._view = not self._view
        self.show()

    def _offer_draw(self) -> None:
        report = self._analysis()
        if report.lines and -report.lines[0].q <= DRAW_LIMIT:
            self.result = "1/2-1/2"
        else:
            print("The engine plays on.")

    def _resign(self) -> None:
        self.result = "0-1" if self._person else "1-0"

    def _say_result(self) -> None:
        outcome = self.board.outcome(claim_draw=True)
        if self.result is not None:
            print(f"{self.result}, by {'agreement' if self.result == '1/2-1/2' else 'resignation'}.")
        elif outcome is not None:
            print(f"{outcome.result()}, by {outcome.termination.name.lower().replace('_', ' ')}.")


def _turned(board: int) -> int:
    """Return a set of squares turned by 180 degrees."""
    import chess

    return chess.flip_vertical(chess.flip_horizontal(board))
