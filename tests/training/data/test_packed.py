# SPDX-License-Identifier: GPL-3.0-or-later
"""Packed positions are the encoder's, bit by bit, in every input format and with every history fill."""

import numpy as np
import pytest

from engine._core import Game
from engine.apps.shards.move_codes import move_code
from protocol.batch import POSITION_DTYPE
from tests.training.labels import NONE, encode_line, random_game
from training.data.packed import pack_positions, unpack_positions


def encoded(input_format: int, fill: str, games: int = 20) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """Positions of random games, some of which shuffle pieces until positions repeat."""
    rows = []
    for seed in range(games):
        fen = "4k2r/8/8/8/8/8/8/R3K3 w Qk - 40 80" if seed % 4 == 3 else None
        moves = random_game(seed, 100, fen).moves()
        asked = np.zeros((len(moves), 0), np.uint16)
        line = np.array([move_code(move) for move in moves], np.uint16)
        rows.append(encode_line(Game(fen), line, *NONE, asked, input_format, fill)[0])
    return np.concatenate(rows).view(POSITION_DTYPE).reshape(-1)


@pytest.mark.parametrize("input_format", [1, 2, 3, 4, 5, 132, 133])
@pytest.mark.parametrize("fill", ["no", "fen_only", "always"])
def test_packing_loses_nothing(input_format: int, fill: str) -> None:
    positions = encoded(input_format, fill)
    again = unpack_positions(pack_positions(positions))
    assert np.array_equal(again["planes"], positions["planes"])
    assert np.array_equal(again["rule50"], positions["rule50"])
    assert positions["planes"][:, 12:104:13].any()  # repetitions were among them
