# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront analyse`: search a position and show its best lines meanwhile."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.options import Options
from engine.options.flags import engine_flags, options_of_arguments
from protocol.common.commands import Declared

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from engine._core import Game
    from engine.search.report import Line, Report
    from engine.search.session import Session

HELP = "analyse a position and show the best lines as they are found"

DEFAULTS = Options(multipv=3, smart_pruning_factor=0.0)
DEFAULT_MOVETIME_MS = 10_000
SHOWN_PLIES = 12

LEAST_LINE = 20
"""Characters that the lines of play have at least. A narrow terminal shows fewer of the other columns."""


USAGE = "%(prog)s [FEN | FILE.pgn] [flags]"
ARGUMENTS: Declared = {
    "position FEN*": "position, with or without quotes, or startpos (default); of a PGN file, its last "
    "game's end",
    "--fen FEN": "position, as a flag",
    "--moves MOVE*": "moves from there, e.g. e4 e5 or e2e4 e7e5",
    "--game N:int": "number of the game in the PGN file",
    "": {
        "--movetime MOVETIME:int": f"milliseconds to think (default: {DEFAULT_MOVETIME_MS})",
        "--nodes NODES:int": "nodes to search",
        "--infinite": "think until interrupted with Ctrl-C",
    },
    "--tree FILE": "load the tree of FILE if it exists, and save it at the end",
    **engine_flags(defaults=DEFAULTS),
}


def run(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    from engine.evaluation.errors import NoEvaluatorError
    from engine.search.control import SearchControl
    from engine.search.limits import Limits
    from engine.search.session import Session
    from protocol.common.interruptible import interruptible

    if (arguments.movetime is not None and arguments.movetime < 1) or (
        arguments.nodes is not None and arguments.nodes < 1
    ):
        print("wavefront analyse: the limit must be above 0", file=sys.stderr)
        return 2
    options = options_of_arguments(arguments, DEFAULTS)
    given = arguments.fen or " ".join(arguments.position)
    fen = given or "startpos"
    if arguments.fen and arguments.position:
        print("wavefront analyse: the position is given twice, with --fen and without", file=sys.stderr)
        return 2
    bounded = arguments.nodes is not None or arguments.infinite
    limits = Limits(
        nodes=arguments.nodes,
        movetime_ms=None if bounded else arguments.movetime or DEFAULT_MOVETIME_MS,
        infinite=arguments.infinite,
    )
    console = Console()
    session = Session(options, log=lambda text: print(f"wavefront: {text}", file=sys.stderr))
    try:
        _set_position(session, fen, arguments)
        with console.status("starting the evaluator …"):
            while not session.ready(60.0):
                pass
        if arguments.tree:
            _load_tree(session, arguments.tree, has_position=bool(given or arguments.moves))
        view = _View(console, session.game, session.describe_evaluator())
        control = SearchControl()
        with view:
            report, _ = interruptible(
                lambda: session.search(limits, control=control, on_report=view.show), control.stop
            )
            view.show(report)
        view.conclude(report)
        if arguments.tree and report.nodes:
            _save_tree(session, arguments.tree)
    except (NoEvaluatorError, ValueError) as error:
        print(f"wavefront analyse: {error}", file=sys.stderr)
        return 1
    finally:
        session.close()
    return 0


def _set_position(session: Session, fen: str, arguments: argparse.Namespace) -> None:
    """Set the position and the moves of the command line. Raises ValueError."""
    import chess

    from engine.apps.games.typed_moves import is_file_name, last_position, push_words

    if arguments.position and is_file_name(fen):
        board, which = last_position(Path(fen), arguments.game)
        print(f"wavefront: {which}", file=sys.stderr)
    else:
        if arguments.game is not None:
            raise ValueError("--game needs a PGN file")
        session.set_position(None if fen == "startpos" else fen)
        board = chess.Board(session.game.fen(), chess960=session.game.chess960)
    push_words(board, arguments.moves)
    moves = [move.uci() for move in board.move_stack]
    session.set_position(board.root().fen(), moves, chess960=board.chess960)


def _load_tree(session: Session, path: str, *, has_position: bool) -> None:
    """Load the tree of a file, if it exists, and search its position unless one is given.

    Raises ValueError if the file is refused, or if it has no visits of the position: saving would lose them.
    """
    import os

    from engine.search.player.tree_file import described

    if not os.path.lexists(path):
        return
    try:
        game, size = session.load_tree(path)
    except ValueError as error:
        raise ValueError(f"--tree: {path}: {error}") from None
    if not has_position:
        session.game = game
    elif not session.has_visits():
        raise ValueError(
            f"--tree: {path} has no visits of this position, but those of {game.fen()}: choose another file"
        )
    print(f"wavefront: tree loaded from {path}: {described(size)}", file=sys.stderr)


def _save_tree(session: Session, path: str) -> None:
    """Save the tree. Ctrl-C does not interrupt this. Raises ValueError."""
    import signal

    from engine.search.player.tree_file import described

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        size = session.save_tree(path)
    except ValueError as error:
        raise ValueError(f"--tree: {path}: {error}") from None
    finally:
        signal.signal(signal.SIGINT, before)
    print(f"wavefront: tree saved to {path}: {described(size)}", file=sys.stderr)


class _View:
    """A live table on a terminal, otherwise plain lines."""

    def __init__(self, console: Console, game: Game, evaluator: str) -> None:
        from rich.live import Live

        self._console = console
        self._game = game
        self._evaluator = evaluator
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> _View:
        if self._live is not None:
            self._live.__enter__()
        else:
            print(f"position {self._game.fen()}\nevaluator {self._evaluator}", flush=True)
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._live is not None:
            self._live.__exit__(*exception)

    def show(self, report: Report) -> None:
        if self._live is not None:
            self._live.update(self._table(report), refresh=True)
        else:
            for number, line in enumerate(report.lines, 1):
                win, draw, loss = (round(100 * share) for share in line.wdl)
                print(
                    f"{report.seconds:6.1f} s {report.nodes:9,d} nodes {report.nodes_per_second:8,d}/s  "
                    f"{number}. {_score(line):>7}  w {win:3d}% d {draw:3d}% l {loss:3d}%  "
                    f"{self._moves(line)}",
                    flush=True,
                )

    def conclude(self, report: Report) -> None:
        best = self._san(report.best_move) if report.best_move else "none: the game is over"
        self._console.print(f"best move {best}", highlight=False)

    def _table(self, report: Report) -> Table:
        from rich.table import Table
        from rich.text import Text

        best = self._san(report.best_move) if report.best_move else "-"
        table = Table(
            title=self._game.fen(),
            caption=Text(
                f"best move {best}   {report.nodes:,} nodes   {report.nodes_per_second:,} nodes/s   "
                f"depth {report.depth}/{report.selective_depth}   mean batch {report.mean_batch:.0f}   "
                f"{report.seconds:.1f} s\n{self._evaluator}",
                "table.caption",
            ),
        )
        lines = report.lines
        columns = {
            "": [str(number) for number in range(1, len(lines) + 1)],
            "score": [_score(line) for line in lines],
            **{
                heading: [f"{100 * line.wdl[index]:.0f} %" for line in lines]
                for index, heading in enumerate(("win", "draw", "loss"))
            },
            "visits": [f"{line.visits:,}" for line in lines],
            "prior": [f"{100 * line.prior:.1f} %" for line in lines],
        }
        for dispensable in (("prior",), ("visits",), ("win", "draw", "loss")):
            frames = 3 * (len(columns) + 1) + 1
            width = frames + sum(max(map(len, [heading, *cells])) for heading, cells in columns.items())
            if self._console.width - width < LEAST_LINE:
                columns = {heading: cells for heading, cells in columns.items() if heading not in dispensable}
        for heading in columns:
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("line", overflow="fold")
        for cells, line in zip(zip(*columns.values(), strict=True), lines, strict=True):
            table.add_row(*cells, self._moves(line))
        return table

    def _san(self, move: str) -> str:
        return self._game.san(move)

    def _moves(self, line: Line) -> str:
        from engine.search.notation import san_of

        told = list(san_of(self._game.fen(), self._game.chess960, line.moves[:SHOWN_PLIES]))
        for place in range(len(told)):
            number, black = divmod(self._game.ply + place, 2)
            if not black or not place:
                told[place] = f"{number + 1}{'...' if black else '. '}{told[place]}"
        return " ".join(told)


def _score(line: Line) -> str:
    return f"{line.centipawns() / 100:+.2f}" if line.mate is None else f"mate {line.mate}"
