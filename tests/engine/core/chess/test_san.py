# SPDX-License-Identifier: GPL-3.0-or-later
"""Moves in SAN, against python-chess."""

import random

import chess
import pytest

from engine._core import Game


@pytest.mark.parametrize("chess960", [False, True])
def test_san_is_that_of_python_chess(chess960: bool) -> None:
    rng = random.Random(1)
    for _ in range(20):
        number = rng.randrange(960) if chess960 else 518
        board = chess.Board.from_chess960_pos(number) if chess960 else chess.Board()
        game = Game(board.fen(), chess960)
        for _ in range(100):
            moves = list(board.legal_moves)
            for move in moves:
                san = board.san(move)
                assert game.san(board.uci(move)) == san
                assert game.copy().push_san(san.rstrip("+#")) == board.uci(move)
            if not moves:
                break
            move = rng.choice(moves)
            game.push_uci(board.uci(move))
            board.push(move)


@pytest.mark.parametrize("text", ["e2e4", "e2-e4", "Ng1-f3", "g1f3", "Nbc3"])
def test_san_with_more_than_it_needs_is_read(text: str) -> None:
    assert Game().push_san(text) == chess.Board().parse_san(text).uci()


@pytest.mark.parametrize(
    "text", ["", "N", "xe4", "ee4", "2e4", "Ne4", "O-O", "e5", "Nf9", "e4=Q", "♘f3", "--"]
)
def test_san_that_is_no_legal_move_is_refused(text: str) -> None:
    game = Game()
    with pytest.raises(ValueError, match="move"):
        game.push_san(text)
    assert not game.moves()


def test_san_that_fits_two_moves_is_refused() -> None:
    with pytest.raises(ValueError, match="several moves"):
        Game("4k3/8/8/8/8/5N2/8/1N2K3 w - - 0 1").push_san("Nd2")
