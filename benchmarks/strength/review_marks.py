# SPDX-License-Identifier: GPL-3.0-or-later
"""Marks of `wavefront review` against Stockfish.

python -m benchmarks.strength.review_marks REVIEW.jsonl... --cache VALUES.json

A blunder is a move that loses at least 20 % of the expected score 1 / (1 + exp(-cp / 100)) by a search of
Stockfish, from a position between 5 and 95 %. Prints two figures with Wilson intervals of 95 %:

found      share of the blunders that the review marks as mistake or blunder
harmless   share of the review's blunders that lose less than 10 % by Stockfish

A table shows both by threshold of the review's loss, for games of odd numbers and of even ones: choose a
threshold on one half, and read its figure on the other.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import exp, sqrt
from pathlib import Path
from typing import Any

import chess
import chess.engine

from engine.review.judging import FAULTS
from protocol.host.files import write_atomically

BLUNDER, HARMLESS = 0.2, 0.1
DECIDED = 0.05
THRESHOLDS = tuple(percent / 100 for percent in (4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 18, 20, 22, 25, 30))


@dataclass(frozen=True, slots=True)
class Compared:
    """A move by the review and by Stockfish. game: number of its game. reference: its loss by Stockfish."""

    game: int
    mark: str
    loss: float
    reference: float


class Values:
    """Stockfish's centipawns of positions for their side to move, kept in a JSON file.

    A position is its last irreversible one and the moves since then, because repetitions count.
    """

    def __init__(self, path: Path | None, nodes: int) -> None:
        self._path = path
        self._data: dict[str, Any] = {"nodes": nodes, "centipawns": {}}
        if path is not None and path.exists():
            self._data = json.loads(path.read_text("utf-8"))
            if self._data["nodes"] != nodes:
                raise SystemExit(f"{path} has values of {self._data['nodes']} nodes, not of {nodes}")
        self._known: dict[str, int] = self._data["centipawns"]

    def fill(self, boards: Iterable[chess.Board], program: str, processes: int) -> None:
        """Search the positions that are not known, in several processes."""
        missing = {key_of(board): board for board in boards if ended(board) is None}
        rest = [board for key, board in missing.items() if key not in self._known]
        if not rest:
            return
        print(f"searching {len(rest)} of {len(missing)} positions", file=sys.stderr, flush=True)
        with ThreadPoolExecutor(processes) as pool:
            shares = [
                pool.submit(self._search, rest[index::processes], program) for index in range(processes)
            ]
            for share in shares:
                share.result()
        self._save()

    def _search(self, boards: Sequence[chess.Board], program: str) -> None:
        with chess.engine.SimpleEngine.popen_uci(program) as engine:
            for board in boards:
                # Each position is a game of its own: Stockfish clears its table.
                info = engine.analyse(board, chess.engine.Limit(nodes=self._data["nodes"]), game=object())
                points = info["score"].relative.score(mate_score=10_000)
                assert points is not None
                self._known[key_of(board)] = points

    def _save(self) -> None:
        if self._path is not None:
            write_atomically(self._path, json.dumps(self._data).encode())

    def of(self, board: chess.Board) -> float:
        """Return the expected score of the side to move in a searched position."""
        result = ended(board)
        return expected(self._known[key_of(board)]) if result is None else result


def expected(centipawns: float) -> float:
    """Return the expected score of centipawns."""
    return 1 / (1 + exp(-max(-2000, min(2000, centipawns)) / 100))


def ended(board: chess.Board) -> float | None:
    """Return the side to move's score if the game is over, by the third repetition too, otherwise None."""
    if not board.is_game_over() and not board.is_repetition(3) and not board.is_fifty_moves():
        return None
    return 0.0 if board.is_checkmate() else 0.5


def key_of(board: chess.Board) -> str:
    """Return the last irreversible position and the moves since then."""
    since = board.copy(stack=board.halfmove_clock)
    moves = " ".join(move.uci() for move in since.move_stack)
    return f"{since.root().fen()} {moves}".strip()


def positions_of(review: dict[str, Any]) -> list[chess.Board]:
    """Return the positions of a reviewed game, the last included."""
    if not review["moves"]:
        return []
    chess960 = "960" in review["headers"].get("Variant", "")
    board = chess.Board(review["moves"][0]["fen"], chess960=chess960)
    boards = [board.copy()]
    for move in review["moves"]:
        board.push_uci(move["uci"])
        boards.append(board.copy())
    return boards


def compared(
    number: int, review: dict[str, Any], boards: Sequence[chess.Board], values: Values
) -> list[Compared]:
    """Return the moves of a game that Stockfish does not see as decided before."""
    moves = []
    for move, board, following in zip(review["moves"], boards, boards[1:], strict=False):
        before = values.of(board)
        if DECIDED <= before <= 1 - DECIDED:
            loss = before - (1 - values.of(following))
            moves.append(Compared(number, move["mark"], move["loss"], loss))
    return moves


def wilson(successes: int, trials: int, z: float = 1.96) -> tuple[float, float]:
    """Return Wilson's interval of a share."""
    if not trials:
        return 0.0, 1.0
    share = successes / trials
    middle = share + z * z / (2 * trials)
    half = z * sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def shown(successes: int, trials: int) -> str:
    low, high = wilson(successes, trials)
    return f"{successes} of {trials}, {successes / max(1, trials):.1%} ({low:.1%} to {high:.1%})"


def found(moves: Sequence[Compared], threshold: float) -> tuple[int, int]:
    """Return how many blunders the review sees losing the threshold, and how many there are."""
    blunders = [move for move in moves if move.reference >= BLUNDER]
    return sum(move.loss >= threshold for move in blunders), len(blunders)


def harmless(moves: Sequence[Compared], threshold: float) -> tuple[int, int]:
    """Return how many moves that lose the threshold by the review are harmless, and how many there are."""
    marked = [move for move in moves if move.loss >= threshold]
    return sum(move.reference < HARMLESS for move in marked), len(marked)


def report(moves: Sequence[Compared]) -> str:
    blunders = [move for move in moves if move.reference >= BLUNDER]
    lines = [
        f"{len(moves)} moves from undecided positions",
        "found: " + shown(sum(move.mark in FAULTS[1:] for move in blunders), len(blunders)),
    ]
    for marks in (FAULTS[2:], FAULTS[1:]):
        own = [move for move in moves if move.mark in marks]
        lines.append(
            f"harmless, of marks as {' or '.join(marks)}: "
            + shown(sum(move.reference < HARMLESS for move in own), len(own))
        )
    halves = [[move for move in moves if move.game % 2 == rest] for rest in (1, 0)]
    lines.append("threshold  found: odd games, even games  harmless: odd games, even games")
    for threshold in THRESHOLDS:
        cells = [shown(*figure(half, threshold)) for figure in (found, harmless) for half in halves]
        lines.append(f"{threshold:.0%}  " + "  ".join(cells))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("review", nargs="+", type=Path, help="review.jsonl of `wavefront review`")
    parser.add_argument("--cache", type=Path, metavar="FILE", help="JSON file of Stockfish's values")
    parser.add_argument("--stockfish", default="/usr/games/stockfish", metavar="PROGRAM")
    parser.add_argument("--nodes", type=int, default=100_000, help="of each position (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=1, help="Stockfish's (default: %(default)s)")
    arguments = parser.parse_args()
    lines = [line for path in arguments.review for line in path.read_text("utf-8").splitlines()]
    reviews = [entry["review"] for entry in map(json.loads, lines) if "review" in entry]
    values = Values(arguments.cache, arguments.nodes)
    moves: list[Compared] = []
    for number, review in enumerate(reviews, 1):
        boards = positions_of(review)
        values.fill(boards, arguments.stockfish, arguments.processes)
        moves += compared(number, review, boards, values)
    print(f"{len(reviews)} games, ", end="")
    print(report(moves))
    return 0


if __name__ == "__main__":
    sys.exit(main())
