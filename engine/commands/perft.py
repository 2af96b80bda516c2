# SPDX-License-Identifier: GPL-3.0-or-later
"""`wavefront perft`: count move sequences, to verify move generation and measure its speed."""

from __future__ import annotations

import argparse
import sys
import time

from engine._core import Game, perft, perft_divide

HELP = "count the legal move sequences of a position to a depth"


ARGUMENTS = {
    "depth DEPTH:int": "plies, 1 to 30",
    "--fen FEN": "the position (default: the initial position)",
    "--chess960": "Chess960 rules, FEN and castling moves",
    "--divide": "also print the count for each first move",
}


def run(arguments: argparse.Namespace) -> int:
    """Print nodes, seconds and nodes per second. Return 2 for an illegal FEN or depth."""
    try:
        if arguments.fen is None:
            game = Game(None, arguments.chess960)
        else:
            game, corrections = Game.read(arguments.fen, arguments.chess960)
            if corrections:
                print(f"wavefront perft: FEN corrected: {'; '.join(corrections)}", file=sys.stderr)
        start = time.perf_counter()
        if arguments.divide:
            counts = perft_divide(game, arguments.depth)
            nodes = sum(count for _, count in counts)
        else:
            counts = []
            nodes = perft(game, arguments.depth)
        seconds = time.perf_counter() - start
    except ValueError as error:
        print(f"wavefront perft: {error}", file=sys.stderr)
        return 2
    for move, count in sorted(counts):
        print(f"{move}: {count}")
    print(f"nodes {nodes}")
    print(f"seconds {seconds:.3f}")
    print(f"nodes/s {nodes / max(seconds, 1e-9):.0f}")
    return 0
