# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the protocol's test vectors: positions, their bytes, their policy indices, and an evaluation of each.

    python -m scripts.protocol_vectors > tests/protocol/kit/vectors.json

The engine produces bytes and indices; the evaluator's backend `random` produces the evaluations.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from engine._core import Game
from engine.evaluation.link.encoding import encode_games
from evaluator.backends import open_backend

ALL = (1, 2, 3, 4, 132, 5, 133)

POSITIONS: tuple[tuple[str, str, str, tuple[int, ...]], ...] = (
    ("the initial position", "startpos", "", ALL),
    ("Black to move: ranks are mirrored", "startpos", "e2e4", ALL),
    ("an en-passant capture", "startpos", "e2e4 g8f6 e4e5 d7d5", (1, 3)),
    (
        "castling both ways, and a history",
        "startpos",
        "d2d4 d7d5 c1f4 c8f5 b1c3 b8c6 d1d2 d8d7 e2e3 e7e6 f1d3 f8d6 g1f3 g8f6",
        (1, 3, 5),
    ),
    ("the third occurrence", "startpos", "g1f3 g8f6 f3g1 f6g8 g1f3 g8f6 f3g1 f6g8", (1, 3, 5)),
    ("a repetition within a game", "startpos", "e2e3 g8f6 g1f3 f6g8 f3g1 b8c6", (1, 4, 133)),
    ("a FEN without history, castling rights in part", "r3k3/8/8/8/8/8/P7/4K2R w Kq - 7 30", "", ALL),
    (
        "an en-passant square in the FEN",
        "rnbqkbnr/ppp1pppp/8/8/3pP3/8/PPPP1PPP/RNBQKBNR b KQkq e3 0 3",
        "",
        (1, 3),
    ),
    ("promotions and captures with them", "3n4/2P1P2k/8/8/8/8/8/K7 w - - 4 60", "", (1, 3)),
    ("Black's promotions", "k7/8/8/8/8/8/2p1p2K/3N4 b - - 0 60", "", (1, 3)),
    ("flip: our king on the a- to d-files", "8/5k2/8/8/8/1K6/P7/8 w - - 12 60", "", (1, 3)),
    ("flip and mirror: no pawns", "1K6/8/8/8/5k2/8/1R6/8 w - - 12 60", "", (1, 3)),
    ("transpose: moves are turned", "8/7k/8/6K1/8/8/R7/8 b - - 99 90", "", (1, 3)),
    ("flip, mirror and transpose", "8/5k2/8/1K6/8/8/1R6/8 w - - 12 60", "", (3,)),
    ("the diagonal: masks decide", "8/8/8/8/6R1/5N2/6K1/k7 w - - 3 90", "", (1, 3)),
    ("Chess960: king takes rook", "1r2k1r1/pppppppp/8/8/8/8/PPPPPPPP/1R2K1R1 w GBgb - 0 1", "", (1, 2, 3)),
    ("mate: no moves", "startpos", "f2f3 e7e5 g2g4 d8h4", (1,)),
)
"""Description, FEN, moves, input formats."""


def vector(shows: str, fen: str, moves: str, input_format: int) -> dict[str, Any]:
    """Return one entry of the file."""
    chess960 = shows.startswith("Chess960")
    game = Game(None if fen == "startpos" else fen, chess960)
    for move in moves.split():
        game.push_uci(move)
    batch, transforms = encode_games([game], input_format=input_format)
    answer = open_backend("random", None).evaluate(batch)
    return {
        "shows": shows,
        "fen": fen,
        "moves": moves.split(),
        "chess960": chess960,
        "input_format": input_format,
        "transform": int(transforms[0]),
        "record": batch.positions.tobytes().hex(),
        "legal_moves": game.legal_moves(),
        "policy_indices": batch.moves.tolist(),
        # The shortest texts that identify these float32.
        "logits": [float(str(logit)) for logit in answer.logits],
        "wdl": [float(str(share)) for share in answer.wdl[0]],
        "moves_left": float(str(answer.moves_left[0])),
    }


def document() -> str:
    """Return the whole file."""
    vectors = [
        vector(shows, fen, moves, input_format)
        for shows, fen, moves, formats in POSITIONS
        for input_format in formats
    ]
    return "[\n" + ",\n".join(json.dumps(entry) for entry in vectors) + "\n]\n"


if __name__ == "__main__":
    sys.stdout.write(document())
