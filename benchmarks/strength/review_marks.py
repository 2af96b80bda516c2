# SPDX-License-Identifier: GPL-3.0-or-later
"""Blunders that `wavefront review` finds, against Stockfish.

python -m benchmarks.strength.review_marks REVIEW.jsonl [--stockfish PROGRAM] [--nodes N]

A blunder is a move that loses at least 20 % of the expected score 1 / (1 + exp(-cp / 100)) by a search of
Stockfish, from a position between 5 and 95 %. Prints the share of these that the review marks as mistake or
blunder, and the share of the review's marks that lose less than 10 %.
"""

from __future__ import annotations

import argparse
import json
import sys
from math import exp
from pathlib import Path

import chess
import chess.engine

from engine.review.judging import FAULTS

BLUNDER, HARMLESS = 0.2, 0.1
DECIDED = 0.05


def expected(score: chess.engine.PovScore, color: chess.Color) -> float:
    """Return the expected score of a color, by a score in centipawns."""
    points = score.pov(color).score(mate_score=10_000)
    assert points is not None
    return 1 / (1 + exp(-max(-2000, min(2000, points)) / 100))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("review", type=Path, help="review.jsonl of `wavefront review`")
    parser.add_argument("--stockfish", default="/usr/games/stockfish", metavar="PROGRAM")
    parser.add_argument("--nodes", type=int, default=100_000, help="of each position (default: %(default)s)")
    arguments = parser.parse_args()
    losses: list[tuple[float, float, str, str]] = []
    with chess.engine.SimpleEngine.popen_uci(arguments.stockfish) as engine:
        for line in arguments.review.read_text("utf-8").splitlines():
            review = json.loads(line).get("review")
            if review is None:
                continue
            for move in review["moves"]:
                board = chess.Board(move["fen"])
                before = value_of(engine, board, board.turn, arguments.nodes)
                color = board.turn
                board.push_uci(move["uci"])
                after = value_of(engine, board, color, arguments.nodes)
                losses.append((before, before - after, move["mark"], move["fen"]))
            print(f"game {review['number']}", file=sys.stderr, flush=True)
    undecided = [each for each in losses if DECIDED <= each[0] <= 1 - DECIDED]
    blunders = [mark for _, loss, mark, _ in undecided if loss >= BLUNDER]
    found = sum(mark in FAULTS[1:] for mark in blunders)
    marked = [loss for _, loss, mark, _ in undecided if mark in FAULTS[1:]]
    harmless = sum(loss < HARMLESS for loss in marked)
    print(f"{len(losses)} moves, {len(undecided)} from undecided positions")
    print(f"blunders found: {found} of {len(blunders)}, {found / max(1, len(blunders)):.1%}")
    print(f"marks that lose less than {HARMLESS:.0%}: {harmless} of {len(marked)}")
    return 0


def value_of(engine: chess.engine.SimpleEngine, board: chess.Board, color: chess.Color, nodes: int) -> float:
    """Return the expected score of a color in a position, from a cleared table."""
    if board.is_game_over():
        winner = board.outcome()
        if winner is None or winner.winner is None:
            return 0.5
        return float(winner.winner == color)
    info = engine.analyse(board, chess.engine.Limit(nodes=nodes), game=object())
    return expected(info["score"], color)


if __name__ == "__main__":
    sys.exit(main())
