"""Positions that a batch looks ahead to: sent early, counted only when the search comes to them."""

from __future__ import annotations

import numpy as np

from engine._core import Batch, Tree
from tests.engine.core.tree.search_helpers import MIDDLEGAME, game, new_tree, search


def apply_by_pieces(tree: Tree, batch: Batch) -> None:
    """Apply evaluations that depend on a position's pieces alone, as the cache takes for granted."""
    offsets, moves = batch.move_offsets, batch.moves
    logits, wdl = np.empty(len(moves), np.float32), np.empty((batch.size, 3), np.float32)
    for index, position in enumerate(batch.positions):
        random = np.random.default_rng(position[: 12 * 8])
        own = slice(offsets[index], offsets[index + 1])
        logits[own] = 3 * random.standard_normal(1858, np.float32)[moves[own]]
        wdl[index] = random.dirichlet((1, 1, 1))
    tree.apply(batch, logits, wdl, np.zeros(batch.size, np.float32))


def test_looking_ahead_changes_what_is_sent_but_not_what_is_found() -> None:
    found, batches = [], []
    for ahead in (0, 24):
        tree = new_tree(game(MIDDLEGAME))
        batch = Batch(1 + ahead)
        batches.append(0)
        while (visits := tree.root_info().visits) < 600:
            result = tree.collect(batch, 1, 600 - visits, ahead)
            assert result.evaluations == batch.size <= 600 - visits
            if batch.size:
                apply_by_pieces(tree, batch)
                batches[-1] += 1
            else:
                tree.cancel(batch)
        assert tree.root_info().visits == 600
        assert all(child.in_flight == 0 for child in tree.children())
        found.append([(c.move, c.visits, c.prior, c.evaluation.q) for c in tree.children()])
    assert found[0] == found[1]
    assert batches[1] < batches[0] / 2


def test_what_is_looked_ahead_to_is_cached_and_has_no_visit() -> None:
    tree = new_tree(game(MIDDLEGAME))
    search(tree, 1)
    batch = Batch(28)
    assert tree.collect(batch, 2, 400, 26).evaluations == 28
    ahead = {position.tobytes() for position in batch.positions[2:]}
    tree.apply_random(batch)
    assert tree.root_info().visits == 3
    batches = []
    while tree.root_info().visits < 100:
        tree.collect(batch, 2, 400)
        batches += [position.tobytes() for position in batch.positions]
        tree.apply_random(batch)
    assert ahead.isdisjoint(batches)
    assert tree.root_info().cache_hits >= len(ahead) / 2


def test_a_batch_that_looked_ahead_can_be_cancelled() -> None:
    tree = new_tree(game(MIDDLEGAME))
    search(tree, 200)
    before = [(c.move, c.visits, c.evaluation.q, c.in_flight) for c in tree.children()]
    batch = Batch(64)
    assert tree.collect(batch, 8, 1000, 56).evaluations > 16
    tree.cancel(batch)
    assert [(c.move, c.visits, c.evaluation.q, c.in_flight) for c in tree.children()] == before
