# SPDX-License-Identifier: GPL-3.0-or-later
"""Batches of several searches go over the wire as one, each with its own positions and moves."""

import numpy as np

from engine._core import Batch, Game, SearchParams, Tree
from engine.evaluation.link.encoding import encode_games, joined_batches, position_batch
from protocol.batch import PositionBatch


def collected(fen: str, positions: int) -> Batch:
    """Return a batch of positions that follow one, after a visit of it."""
    tree, batch = Tree(SearchParams()), Batch(16)
    tree.set_position(Game(fen), 0)
    tree.collect(batch, 1)
    tree.apply_random(batch)
    tree.collect(batch, positions)
    return batch


def equal(one: PositionBatch, other: PositionBatch) -> bool:
    return all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for name in ("positions", "move_offsets", "moves")
    )


def test_joined_batches_equal_their_concatenation() -> None:
    start, endgame = Game().fen(), "8/8/8/8/8/2k5/2p5/2K5 w - - 0 1"
    batches = [collected(start, 5), collected(endgame, 1), collected(start, 3)]
    parts = [position_batch(batch) for batch in batches]
    assert sum(map(len, parts)) > 6
    assert equal(joined_batches(batches), PositionBatch.concatenate(parts))
    assert equal(joined_batches(batches[:1]), parts[0])
    # Positions of games, which a network evaluates without a search, may be among them.
    games, _ = encode_games([Game()], input_format=1)
    assert equal(joined_batches([batches[0], games]), PositionBatch.concatenate([parts[0], games]))
