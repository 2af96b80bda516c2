# SPDX-License-Identifier: GPL-3.0-or-later
"""How often HumanPlay with a network plays the moves that people played.

python -m benchmarks.strength.agreement GAMES.pgn --weights NETWORK [--second NETWORK --mix SHARE]

The most probable move counts (HumanTemperature 0). Prints the share with its 95 % interval by Wilson's
formula, in which each move is a sample of its own.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import chess

from benchmarks.common.figures import wilson
from engine.api import Engine
from engine.games.pgn_reading import PgnGames
from engine.games.text import read_text


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("games", type=Path, help="PGN file")
    parser.add_argument("--weights", required=True, help="network of HumanPlay")
    parser.add_argument("--second", default="", help="network that is mixed in")
    parser.add_argument("--mix", type=float, default=0.5, help="share of --second (default: %(default)s)")
    parser.add_argument("--backend", default="auto", help="(default: auto)")
    arguments = parser.parse_args()
    moves = same = 0
    with Engine(
        weights=arguments.weights,
        backend=arguments.backend,
        human_play=True,
        human_temperature=0.0,
        human_weights=arguments.second,
        human_mix=arguments.mix,
    ) as engine:
        for source in PgnGames(read_text(arguments.games)):
            game = source.read()
            board = game.board()
            played: list[chess.Move] = []
            for move in game.mainline_moves():
                engine.position(board.fen(), [each.uci() for each in played])
                moves += 1
                same += engine.play(nodes=1).best_move == move.uci()
                played.append(move)
    low, high = wilson(same, moves)
    print(f"{same} of {moves} moves, {same / max(1, moves):.1%} ({low:.1%} to {high:.1%})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
