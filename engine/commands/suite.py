"""`wavefront bench --suite`: how many positions of a test suite are solved at how many nodes.

A suite is an EPD file: positions with `bm` (best moves) or `am` (moves to avoid). One is solved at a number
of nodes if the move that the search would play there is right. The search goes on from one number to the
next.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import chess

    from engine.options import Options

LEVELS = (1, 100, 1_000, 10_000)
"""Nodes at which a position is looked at."""


class SuiteError(ValueError):
    """A file that cannot be read as EPD. The message names the line."""


@dataclass(frozen=True, slots=True)
class SuitePosition:
    """One position of a suite. best, avoided: moves in UCI notation; at least one of them is not empty."""

    name: str
    fen: str
    best: frozenset[str]
    avoided: frozenset[str]

    def solved_by(self, move: str | None) -> bool:
        """Whether a move is right."""
        return move not in self.avoided and (not self.best or move in self.best)


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """What a search of one position played at each level of nodes."""

    position: SuitePosition
    moves: Sequence[str | None]

    @property
    def solved(self) -> list[bool]:
        """For each level, whether the move was right."""
        return [self.position.solved_by(move) for move in self.moves]


def read_suite(path: Path) -> list[SuitePosition]:
    """The positions of an EPD file. Raises SuiteError."""
    import chess

    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SuiteError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    positions = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            board, operations = chess.Board.from_epd(line.strip())
            moves = {
                name: frozenset(board.uci(move) for move in _moves(operations.get(name)))
                for name in ("bm", "am")
            }
        except (ValueError, IndexError) as error:
            raise SuiteError(f"{path}, line {number}: {error}") from None
        if not moves["bm"] and not moves["am"]:
            raise SuiteError(f"{path}, line {number}: neither bm nor am says which move is right")
        name = str(operations.get("id", number))
        positions.append(SuitePosition(name, board.fen(), moves["bm"], moves["am"]))
    if not positions:
        raise SuiteError(f"{path}: there is no position in it")
    return positions


def _moves(operand: object) -> list[chess.Move]:
    import chess

    return [move for move in operand if isinstance(move, chess.Move)] if isinstance(operand, list) else []


def levels_up_to(nodes: int | None) -> list[int]:
    """The numbers of nodes to look at, `nodes` being the last; LEVELS if it is None."""
    return list(LEVELS) if nodes is None else [*(level for level in LEVELS if level < nodes), nodes]


def run_suite(arguments: argparse.Namespace, options: Options) -> int:
    """Search every position of the suite and print the table; returns the exit status."""
    levels = levels_up_to(arguments.nodes)
    deadline = perf_counter() + arguments.time_limit if arguments.time_limit else None
    results: list[SuiteResult] = []
    began = perf_counter()
    try:
        positions = read_suite(Path(arguments.suite))
        _search(positions, levels, options, arguments, deadline, results)
    except SuiteError as error:
        print(f"wavefront bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # What is known until then is shown.
        pass
    seconds = perf_counter() - began
    if arguments.json:
        print(json.dumps(_data(levels, results, seconds), ensure_ascii=False))
    else:
        _print_table(Path(arguments.suite).name, levels, results, seconds)
    return 0


def _search(
    positions: Sequence[SuitePosition],
    levels: Sequence[int],
    options: Options,
    arguments: argparse.Namespace,
    deadline: float | None,
    results: list[SuiteResult],
) -> None:
    """Search the positions in turn; the results are appended as they come."""
    from engine.search.limits import Limits
    from engine.session import Session

    session = Session(
        options,
        log=lambda text: print(f"wavefront bench: {text}", file=sys.stderr),
        in_process=arguments.in_process,
    )
    try:
        while not session.ready(60.0):
            pass
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
                print(f"{number:4d}  {played}  {position.name[:40]}", flush=True)
    finally:
        session.close()


def _data(levels: Sequence[int], results: Sequence[SuiteResult], seconds: float) -> dict[str, object]:
    return {
        "positions": len(results),
        "seconds": round(seconds, 3),
        "solved": {str(level): count for level, count in zip(levels, _solved(levels, results), strict=True)},
        "results": [
            {"name": result.position.name, "moves": list(result.moves), "solved": result.solved}
            for result in results
        ],
    }


def _solved(levels: Sequence[int], results: Sequence[SuiteResult]) -> list[int]:
    """How many positions were solved at each level."""
    return [sum(result.solved[index] for result in results) for index in range(len(levels))]


def _print_table(name: str, levels: Sequence[int], results: Sequence[SuiteResult], seconds: float) -> None:
    from rich.console import Console
    from rich.table import Table

    print(f"{name[:50]}: {len(results)} positions, {seconds:.0f} s")
    table = Table()
    for heading in ("nodes", "solved", "percent"):
        table.add_column(heading, justify="right")
    for level, count in zip(levels, _solved(levels, results), strict=True):
        table.add_row(f"{level:,}", str(count), f"{100 * count / max(1, len(results)):.1f}")
    Console().print(table)
