# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront bench --suite`: the number of solved positions of a test suite per number of nodes.

A suite is an EPD file: positions with `bm` (best moves) or `am` (moves to avoid). A position is solved at N
nodes if the move that the search would then play is correct. The search continues to the next number.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shutil import get_terminal_size
from time import perf_counter
from typing import TYPE_CHECKING

import chess

from engine._core import Game
from engine.apps.games.epd import position_lines, read_epd
from engine.apps.games.text import read_text
from protocol.common.printing import ReportedError, failing_as, say

if TYPE_CHECKING:
    from engine.options import Options


@dataclass(frozen=True, slots=True)
class SuitePosition:
    """One position of a suite. best, avoided: moves in UCI notation; at least one of them is not empty."""

    name: str
    fen: str
    best: frozenset[str]
    avoided: frozenset[str]

    def solved_by(self, move: str | None) -> bool:
        """Return True if a move is correct."""
        return move not in self.avoided and (not self.best or move in self.best)


@dataclass(frozen=True, slots=True)
class Suite:
    """A file's positions, and the numbers of skipped lines with the reasons."""

    positions: Sequence[SuitePosition]
    left_out: Mapping[int, str]


def read_suite(path: Path, note: Callable[[str], None] = lambda text: None) -> Suite:
    """Read an EPD file. note: called if it is not UTF-8. Raises ReportedError if no position is usable."""
    with failing_as(ReportedError, f"cannot read {path}"):
        text = read_text(path, note)
    positions: list[SuitePosition] = []
    left_out: dict[int, str] = {}
    for number, line in position_lines(text):
        try:
            positions.append(_position(number, line))
        except ValueError as error:
            left_out[number] = str(error)
    if not positions:
        first = next((f"; line {number}: {reason}" for number, reason in left_out.items()), "")
        raise ReportedError(f"{path}: there is no position in it{first}")
    return Suite(positions, left_out)


def _position(number: int, line: str) -> SuitePosition:
    """Return the position of a line. Raises ValueError."""
    epd = read_epd(line)
    board, operations = chess.Board(epd.fen), epd.operations
    best, avoided = (
        frozenset(board.parse_san(move).uci() for move in operations.get(name, "").split())
        for name in ("bm", "am")
    )
    if not best and not avoided:
        raise ValueError("neither bm nor am says which move is right")
    if not Game(board.fen()).playable:
        raise ValueError("the side to move could take the king")
    return SuitePosition(operations.get("id", str(number)), board.fen(), best, avoided)


_log = partial(say, "wavefront bench")

LEVELS = (1, 100, 1_000, 10_000)
"""Nodes at which the move is checked."""

COMPLAINTS = 5
"""Maximum reported lines of a suite that are skipped."""

COLUMNS = 80
"""Width of the output if it is not a terminal."""


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """The moves of a search of one position at each number of nodes."""

    position: SuitePosition
    moves: Sequence[str | None]

    @property
    def solved(self) -> list[bool]:
        """True for each level at which the move was correct."""
        return [self.position.solved_by(move) for move in self.moves]


def levels_up_to(nodes: int | None) -> list[int]:
    """Return the numbers of nodes to check, with `nodes` as the last; LEVELS if it is None."""
    return list(LEVELS) if nodes is None else [*(level for level in LEVELS if level < nodes), nodes]


def run_suite(arguments: argparse.Namespace, options: Options) -> int:
    """Search every position of the suite, print the table, and return the exit status. Raises ReportedError
    and NoEvaluatorError."""
    levels = levels_up_to(arguments.nodes)
    deadline = perf_counter() + arguments.time_limit if arguments.time_limit else None
    results: list[SuiteResult] = []
    path = Path(arguments.suite)
    suite = read_suite(path, _log)
    _complain(path, suite)
    began = perf_counter()
    with contextlib.suppress(KeyboardInterrupt):  # Show the results so far.
        _search(suite.positions, levels, options, arguments, deadline, results)
    seconds = perf_counter() - began
    if arguments.json:
        print(json.dumps(_data(levels, suite, results, seconds), ensure_ascii=False))
    else:
        _print_table(path.name, levels, suite, results, seconds)
    return 0


def _complain(path: Path, suite: Suite) -> None:
    """Report the errors in lines of the file."""
    for number, reason in [*suite.left_out.items()][:COMPLAINTS]:
        _log(f"{path}, line {number} is left out: {reason}")
    if len(suite.left_out) > COMPLAINTS:
        _log(f"so are {len(suite.left_out) - COMPLAINTS} more lines")


def _search(
    positions: Sequence[SuitePosition],
    levels: Sequence[int],
    options: Options,
    arguments: argparse.Namespace,
    deadline: float | None,
    results: list[SuiteResult],
) -> None:
    """Search the positions in order, and append each result."""
    from engine.search.limits import Limits
    from engine.search.session import Session

    session = Session(options, log=_log, in_process=arguments.in_process)
    width = get_terminal_size((COLUMNS, 24)).columns if sys.stdout.isatty() else COLUMNS
    try:
        while not session.ready(60.0):
            pass
        if not arguments.json:
            print(("nodes  " + " ".join(f"{level:<6}" for level in levels))[:width].rstrip(), flush=True)
        for number, position in enumerate(positions, 1):
            if deadline is not None and perf_counter() >= deadline:
                break
            session.clear()
            session.set_position(position.fen)
            moves = [session.search(Limits(nodes=level)).best_move for level in levels]
            results.append(SuiteResult(position, moves))
            if not arguments.json:
                played = " ".join(
                    f"{move or '-':<5}{'+' if right else ' '}"
                    for move, right in zip(moves, results[-1].solved, strict=True)
                )
                print(f"{number:5d}  {played}  {position.name}"[:width], flush=True)
    finally:
        session.close()


def _data(
    levels: Sequence[int], suite: Suite, results: Sequence[SuiteResult], seconds: float
) -> dict[str, object]:
    return {
        "positions": len(results),
        "not_searched": len(suite.positions) - len(results),
        "left_out": {str(number): reason for number, reason in suite.left_out.items()},
        "seconds": round(seconds, 3),
        "solved": {str(level): count for level, count in zip(levels, _solved(levels, results), strict=True)},
        "results": [
            {"name": result.position.name, "moves": list(result.moves), "solved": result.solved}
            for result in results
        ],
    }


def _solved(levels: Sequence[int], results: Sequence[SuiteResult]) -> list[int]:
    """Return the number of solved positions at each level."""
    return [sum(result.solved[index] for result in results) for index in range(len(levels))]


def _print_table(
    name: str, levels: Sequence[int], suite: Suite, results: Sequence[SuiteResult], seconds: float
) -> None:
    from rich.console import Console
    from rich.table import Table

    all_of_them = "" if len(results) == len(suite.positions) else f" of {len(suite.positions):,}"
    lines = f", {len(suite.left_out):,} lines left out" if suite.left_out else ""
    print(f"{name[:32]}: {len(results):,}{all_of_them} positions, {seconds:.0f} s{lines}")
    if not results:
        return
    table = Table()
    for heading in ("nodes", "solved", "percent"):
        table.add_column(heading, justify="right")
    for level, count in zip(levels, _solved(levels, results), strict=True):
        table.add_row(f"{level:,}", str(count), f"{100 * count / max(1, len(results)):.1f}")
    Console().print(table)
