# SPDX-License-Identifier: GPL-3.0-or-later
"""Random games for tests: the same moves in the native core and in python-chess, the oracle."""

import random
from collections.abc import Iterator

import chess

from engine._core import Game

STARTS = [
    chess.STARTING_FEN,
    "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1",
    "8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 w - - 0 1",
    "n1n5/PPPk4/8/8/8/8/4Kppp/5N1N b - - 0 1",
    "r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 10 30",
    "4k3/8/8/8/8/8/4P3/4K3 w - - 0 1",
    "8/8/4k3/8/8/3QK3/8/8 w - - 90 100",
    "8/5k2/8/3R4/8/2K5/8/4r3 w - - 60 120",
    "4k3/pppppppp/8/8/8/8/PPPPPPPP/4K3 w - - 0 1",
    "8/5bk1/8/8/8/2KB4/8/8 b - - 3 60",
    "rnbqkbnr/ppp1pppp/8/3p4/8/8/PPPPPPPP/RNBQKBNR w KQkq d6 0 2",
    "7k/8/8/3QQ3/3QQ3/8/8/K7 b - - 0 1",
]


def random_games(
    seed: int, games: int, plies: int, *, chess960: bool = False
) -> Iterator[tuple[Game, chess.Board]]:
    """Play random games, yielding both representations at every position.

    Every third move or so goes back where the piece came from, so that positions repeat. The yielded objects
    change with the next step.
    """
    rng = random.Random(seed)
    for number in range(games):
        if chess960:
            board = chess.Board.from_chess960_pos(rng.randrange(960))
        else:
            board = chess.Board(STARTS[number % len(STARTS)])
        game = Game(
            board.shredder_fen(en_passant="fen") if chess960 else board.fen(en_passant="fen"), chess960
        )
        yield game, board
        for _ in range(plies):
            moves = list(board.legal_moves)
            if not moves:
                break
            move = rng.choice(moves)
            if len(board.move_stack) >= 2 and rng.random() < 0.35:
                last = board.move_stack[-2]
                back = chess.Move(last.to_square, last.from_square)
                if back in moves:
                    move = back
            game.push_uci(board.uci(move))
            board.push(move)
            yield game, board
