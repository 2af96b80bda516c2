# SPDX-License-Identifier: GPL-3.0-or-later
"""Positions that a batch looks ahead to: sent early, counted only when the search comes to them."""

import numpy as np
import pytest

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


def test_look_ahead_position_is_cached_without_a_visit() -> None:
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


def seen_by_the_root(tree: Tree) -> list[tuple[str, int, float, int]]:
    return [(c.move, c.visits, c.evaluation.q, c.in_flight) for c in tree.children()]


def test_next_batch_wants_the_same_after_a_look_ahead() -> None:
    found = []
    for ahead in (0, 60):
        tree = new_tree(game(MIDDLEGAME))
        search(tree, 300)
        first, second = Batch(64), Batch(64)
        tree.collect(first, 4, 1000, ahead)
        found.append([seen_by_the_root(tree)])
        result = tree.collect(second, 16, 1000)
        assert result.evaluations + result.promoted == 16
        assert (result.promoted > 0) == (ahead > 0)
        assert tree.root_info().promoted == result.promoted
        found[-1].append(seen_by_the_root(tree))
    assert found[0] == found[1]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_visit_waits_for_the_batch_that_looked_ahead(order: tuple[int, int]) -> None:
    tree = new_tree(game(MIDDLEGAME))
    search(tree, 300)
    batches = [Batch(64), Batch(64)]
    tree.collect(batches[0], 4, 1000, 60)
    promoted = tree.collect(batches[1], 16, 1000).promoted
    own = batches[1].size
    assert promoted > 0 and own + promoted == 16
    for number in order:
        tree.apply_random(batches[number])
        if number != order[-1]:
            assert tree.root_info().visits == 300 + (4 + promoted if number == 0 else own)
    info = tree.root_info()
    assert info.visits == 320 and info.promoted == 0 and info.batches_in_flight == 0
    assert all(child.in_flight == 0 for child in tree.children())


@pytest.mark.parametrize("end", ["cancel", "abandon"])
def test_waiting_visits_go_with_the_batch_that_looked_ahead(end: str) -> None:
    tree = new_tree(game(MIDDLEGAME))
    search(tree, 300)
    before = seen_by_the_root(tree)
    first, second = Batch(64), Batch(64)
    tree.collect(first, 4, 1000, 60)
    assert tree.collect(second, 16, 1000).promoted > 0
    getattr(tree, end)(first)
    assert tree.root_info().promoted == 0
    tree.cancel(second)
    assert seen_by_the_root(tree) == before
    if end == "abandon":
        tree.apply_random(first)  # For the cache alone.
        assert tree.root_info().visits == 300
        search(tree, 320)
        assert tree.root_info().cache_hits > 0


def test_look_ahead_position_stays_when_the_tree_is_pruned() -> None:
    tree = new_tree(game(MIDDLEGAME), tree_bytes=2 << 20, cache_bytes=0)
    search(tree, 24000)
    assert tree.root_info().full
    ahead, others = Batch(400), Batch(64)
    assert tree.collect(ahead, 8, 100_000, 392).evaluations > 100
    for _ in range(200):
        tree.collect(others, 64, 100_000)
        tree.apply_random(others)
    tree.apply_random(ahead)
    assert tree.root_info().promoted == 0
    assert all(child.in_flight == 0 for child in tree.children())


def test_looking_ahead_passes_positions_that_are_cached() -> None:
    """After a search whose evaluations stay cached, the third batch of 65 is full; without passing them it
    would have 51 positions."""
    tree = new_tree(game(MIDDLEGAME), cpuct=1.7)
    search(tree, 400)
    tree.clear()
    tree.set_position(game(MIDDLEGAME))
    batch = Batch(65)
    for _ in range(2):
        tree.collect(batch, 1, 1000, 64)
        tree.apply_random(batch)
    tree.collect(batch, 1, 1000, 64)
    assert batch.size == 65
    tree.cancel(batch)


def test_look_ahead_leaves_a_move_when_replies_are_in_flight() -> None:
    """All positions have the same value, so the moves not visited are assumed to be worse. There are 20 moves
    and 20 replies."""
    tree = new_tree(game(), cpuct=0.3, cpuct_at_root=0.3)
    batch = Batch(257)
    for _ in range(2):
        tree.collect(batch, 1, 1)
        equal = np.tile(np.array((0, 1, 0), np.float32), (batch.size, 1))
        tree.apply(batch, np.zeros(len(batch.moves), np.float32), equal, np.zeros(batch.size, np.float32))
    tree.collect(batch, 1, 10_000, 256)
    assert batch.size == 20 + 19
    tree.cancel(batch)
