# SPDX-License-Identifier: GPL-3.0-or-later
"""Move generation speed: million perft nodes per second on one thread, next to python-chess.

    python -m benchmarks.search.perft

Target: 80 million nodes/s with bulk counting, also used for python-chess here.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import chess

from engine._core import Game, perft

TARGET = 80.0

# (name, FEN, chess960, depth, python-chess's depth)
POSITIONS = [
    ("initial position", chess.STARTING_FEN, False, 6, 4),
    ("kiwipete", "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1", False, 5, 3),
    ("rook endgame", "8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 w - - 0 1", False, 7, 4),
    ("promotions", "n1n5/PPPk4/8/8/8/8/4Kppp/5N1N b - - 0 1", False, 6, 4),
    ("Chess960 number 0", "bbqnnrkr/pppppppp/8/8/8/8/PPPPPPPP/BBQNNRKR w HFhf - 0 1", True, 6, 4),
]


def python_chess_perft(board: chess.Board, depth: int) -> int:
    if depth == 1:
        return board.legal_moves.count()
    nodes = 0
    for move in board.legal_moves:
        board.push(move)
        nodes += python_chess_perft(board, depth - 1)
        board.pop()
    return nodes


def million_per_second(count: Callable[[], int]) -> float:
    start = time.perf_counter()
    nodes = count()
    return nodes / (time.perf_counter() - start) / 1e6


def main() -> None:
    print(f"{'position':20}{'depth':>6}{'M nodes/s':>12}{'python-chess':>15}")
    slowest = float("inf")
    for name, fen, chess960, depth, peer_depth in POSITIONS:
        game = Game(fen, chess960)
        board = chess.Board(fen, chess960=chess960)
        ours = million_per_second(partial(perft, game, depth))
        peer = million_per_second(partial(python_chess_perft, board, peer_depth))
        slowest = min(slowest, ours)
        print(f"{name:20}{depth:>6}{ours:>12.0f}{peer:>15.2f}")
    verdict = "reached" if slowest >= TARGET else "missed"
    print(f"slowest {slowest:.0f} M nodes/s, target {TARGET:.0f}: {verdict}")


if __name__ == "__main__":
    main()
