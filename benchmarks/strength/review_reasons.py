# SPDX-License-Identifier: GPL-3.0-or-later
"""Reasons of a review against a second implementation and Stockfish's lines.

python -m benchmarks.strength.review_marks --depth quick --output FOLDER
python -m benchmarks.strength.review_reasons FOLDER/review/review.jsonl --cores 2

The second implementation is that of the tests. Stockfish searches the first move of the reason's line with
NODES nodes. Its line, at most PLIES long, agrees with what is won if material is won in the last of its
positions in which no capture wins anything, and with a mate if it sees one. Without such a position it cannot
tell. Reasons with which it does not agree are printed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import chess
import chess.engine

from benchmarks.strength.review_marks import shown
from engine.apps.review.judging import FAULTS
from engine.apps.review.reasons import BoardLine, MoveReason, balance
from tests.engine.apps.review.test_reasons import confirmed

NODES, PLIES = 1_000_000, 12


class Told(NamedTuple):
    """A reason. case: as in the tests. board: before the mistake. line: of the reason."""

    reason: MoveReason
    case: dict[str, Any]
    board: chess.Board
    line: BoardLine


def told(review: dict[str, Any]) -> Iterator[Told]:
    board = chess.Board(review["moves"][0]["fen"])
    for move in review["moves"]:
        following = board.copy()
        following.push_uci(move["uci"])
        lines = {"best": (board, move["line"]), "reply": (following, move["reply"])}
        read = {name: uci_of(*line) for name, line in lines.items()}
        case: dict[str, Any] = {name: " ".join(moves) for name, moves in read.items()}
        case |= {"fen": board.root().fen(), "moves": " ".join(map(str, board.move_stack))}
        mated = None if move["mate_after"] is None else -move["mate_after"]
        case |= {"played": move["uci"], "before": [move["mate"], 0], "after": [mated, 0]}
        for given in move["reasons"]:
            reason = MoveReason(**given)
            name = "best" if reason.missed else "reply"
            yield Told(reason, case, board, BoardLine.of(lines[name][0], read[name], board))
        board = following


def uci_of(board: chess.Board, line: list[str]) -> list[str]:
    board = board.copy()
    return [board.push_san(san).uci() for san in line]


def verdict(program: str, told: Told) -> str:
    """Return `agrees`, `differs` or `cannot tell`."""
    kind, line = told.reason.kind.removeprefix("missed "), told.line
    start, limit = line.boards[0], chess.engine.Limit(nodes=NODES)
    if kind in ("tablebase", "stalemate", "repetition"):
        return "cannot tell"
    with chess.engine.SimpleEngine.popen_uci(program) as engine:
        engine.configure({"Hash": 64})
        info = engine.analyse(start, limit, root_moves=[line.moves[0]])
    mate = info["score"].relative.mate()
    if kind == "mate":
        return "agrees" if mate is not None and mate > 0 else "differs"
    if mate is not None and mate > 0:
        return "agrees"
    found = BoardLine.of(start, [move.uci() for move in info["pv"][:PLIES]], told.board)
    quiet = [ply for ply in range(1, len(found.boards)) if found.quiet(ply)]
    if not quiet or quiet[-1] < 3:
        return "cannot tell"
    won = balance(found.boards[quiet[-1]], found.attacker) - balance(told.board, found.attacker)
    return "agrees" if won > 0 else "differs"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reviews", type=Path, nargs="+", metavar="review.jsonl")
    parser.add_argument("--stockfish", default="/usr/games/stockfish", metavar="PROGRAM")
    parser.add_argument("--cores", type=int, default=1, help="of Stockfish (default: %(default)s)")
    arguments = parser.parse_args()
    lines = [json.loads(line) for path in arguments.reviews for line in path.read_text("utf-8").splitlines()]
    reviews = [line["review"] for line in lines if "review" in line and line["review"]["moves"]]
    marks = sum(move["mark"] in FAULTS for review in reviews for move in review["moves"])
    every = {(each.case["moves"], each.reason): each for review in reviews for each in told(review)}
    reasons = [*every.values()]  # Games that begin alike have the same.
    false = [each for each in reasons if not confirmed(each.case, each.reason)]
    with ThreadPoolExecutor(arguments.cores) as pool:
        verdicts = [*pool.map(partial(verdict, arguments.stockfish), reasons)]
    for each, given in zip(reasons, verdicts, strict=True):
        if given == "differs" or each in false:
            confirms = "not " if each in false else ""
            where = f"after {each.case['played']} in {each.board.fen()}"
            print(f"{given}, {confirms}confirmed: {each.reason.text} {where}")
    counts = Counter(verdicts)
    checked = counts["agrees"] + counts["differs"]
    print(f"{len(reviews)} games, {marks} marks, {len(reasons)} reasons; {counts['cannot tell']} not checked")
    print(shown("confirmed by the second implementation", len(reasons) - len(false), len(reasons)))
    print(shown("Stockfish agrees", counts["agrees"], checked))
    return 0


if __name__ == "__main__":
    sys.exit(main())
