# SPDX-License-Identifier: GPL-3.0-or-later
"""Gathering of batches and what becomes of them: collect, apply and cancel."""

import numpy as np
import pytest

from engine._core import Batch, evaluate_randomly
from tests.engine.core.tree.search_helpers import MIDDLEGAME, game, new_tree, search


def test_the_root_is_evaluated_alone_first() -> None:
    tree = new_tree(game())
    first, second = Batch(8), Batch(8)
    result = tree.collect(first, 8)
    assert (result.evaluations, first.size) == (1, 1)
    assert tree.collect(second, 8).evaluations == 0  # nothing to do until the root's answer is there
    tree.apply_random(first)
    tree.cancel(second)
    assert tree.root_info().visits == 1


def test_visits_of_a_collect_are_limited() -> None:
    tree = new_tree(game(MIDDLEGAME))
    search(tree, 5000)
    batch = Batch(256)
    result = tree.collect(batch, 256, 10)
    assert result.evaluations + result.visits_done <= 10
    tree.cancel(batch)


def test_several_batches_hold_different_positions() -> None:
    tree = new_tree(game(MIDDLEGAME), visits_per_collision=0)
    search(tree, 2000)
    batches = [Batch(32) for _ in range(3)]
    for batch in batches:
        assert tree.collect(batch, 32).evaluations > 16
    positions = [bytes(row) for batch in batches for row in batch.positions]
    assert len(set(positions)) == len(positions)
    for batch in reversed(batches):  # answers may come in any order
        tree.apply_random(batch)
    assert tree.root_info().batches_in_flight == 0
    assert all(child.in_flight == 0 for child in tree.children())


def test_cancelling_a_batch_leaves_no_trace() -> None:
    tree = new_tree(game(MIDDLEGAME))
    search(tree, 500)
    before = [(c.move, c.visits, c.evaluation.q, c.in_flight) for c in tree.children()]
    batch = Batch(64)
    assert tree.collect(batch, 64).evaluations > 10
    assert any(child.in_flight for child in tree.children())
    tree.cancel(batch)
    after = [(c.move, c.visits, c.evaluation.q, c.in_flight) for c in tree.children()]
    done = sum(visits for _, visits, _, _ in after) - sum(visits for _, visits, _, _ in before)
    assert all(in_flight == 0 for *_, in_flight in after)
    assert done == tree.root_info().visits - 500  # only what was finished on the spot
    search(tree, 1000)
    assert sum(child.visits for child in tree.children()) == 999


@pytest.mark.parametrize("fault", ["few_logits", "few_positions", "nan", "infinity"])
def test_wrong_evaluations_are_refused_and_change_nothing(fault: str) -> None:
    tree = new_tree(game(MIDDLEGAME))
    search(tree, 300)
    batch = Batch(16)
    assert tree.collect(batch, 16).evaluations > 2
    logits, wdl, moves_left = evaluate_randomly(batch)
    if fault == "few_logits":
        wrong = (logits[:-1].copy(), wdl, moves_left)
    elif fault == "few_positions":
        wrong = (logits, wdl[:-1].copy(), moves_left)
    else:
        bad = logits.copy()
        bad[3] = np.nan if fault == "nan" else np.inf
        wrong = (bad, wdl, moves_left)
    visits = tree.root_info().visits
    with pytest.raises(ValueError, match="evaluations"):
        tree.apply(batch, *wrong)
    assert tree.root_info().visits == visits
    tree.apply(batch, logits, wdl, moves_left)
    assert tree.root_info().visits == visits + len(moves_left)


def test_misuse_is_refused() -> None:
    tree, other = new_tree(game()), new_tree(game())
    batch = Batch(4)
    tree.collect(batch, 4)
    with pytest.raises(RuntimeError, match="in flight"):
        tree.collect(batch, 4)
    with pytest.raises(RuntimeError, match="in flight"):
        tree.set_position(game(MIDDLEGAME))
    with pytest.raises(RuntimeError, match="in flight"):
        tree.clear()
    with pytest.raises(RuntimeError, match="not collected"):
        other.apply_random(batch)
    tree.apply_random(batch)
    with pytest.raises(RuntimeError, match="not collected"):
        tree.cancel(batch)
    for target in (0, 5):
        with pytest.raises(ValueError, match="capacity"):
            tree.collect(batch, target)
    for ahead in (-1, 3):
        with pytest.raises(ValueError, match="capacity"):
            tree.collect(batch, 2, 100, ahead)
    with pytest.raises(ValueError, match="positions"):
        Batch(0)


def test_batch_loses_few_visits_to_positions_in_flight() -> None:
    lost = []
    for visits_per_collision in (0, 512, 1):
        tree = new_tree(game(MIDDLEGAME), visits_per_collision=visits_per_collision)
        search(tree, 3000)
        batches = [Batch(256), Batch(256)]
        lost.append([tree.collect(batch, 256).collision_visits for batch in batches])
        for batch in batches:
            tree.apply_random(batch)
    assert max(lost[1]) <= 3000 // 512 < min(lost[0])
    assert max(lost[2]) <= 3000**0.5 / 3 < min(lost[0])


def test_answers_of_an_abandoned_batch_go_to_the_cache() -> None:
    tree = new_tree(game(MIDDLEGAME), visits_per_collision=0)
    search(tree, 500)
    batch = Batch(64)
    collected = tree.collect(batch, 64).evaluations
    answers = evaluate_randomly(batch)
    tree.abandon(batch)
    assert tree.root_info().batches_in_flight == 0
    assert all(child.in_flight == 0 for child in tree.children())
    assert len(batch) == collected
    visits = tree.root_info().visits
    tree.apply(batch, *answers)
    assert len(batch) == 0
    assert tree.root_info().visits == visits
    # Much of it is wanted again at once, though what comes back on the way changes what is wanted.
    assert tree.collect(batch, 64).cache_hits > collected / 3


def test_position_may_change_before_an_abandoned_answer() -> None:
    tree = new_tree(game(MIDDLEGAME))
    batch = Batch(8)
    tree.collect(batch, 8)
    answers = evaluate_randomly(batch)
    tree.abandon(batch)
    tree.set_position(game())  # The nodes that the batch was collected from are gone.
    search(tree, 100)
    tree.apply(batch, *answers)
    assert tree.root_info().visits == 100
    tree.set_position(game(MIDDLEGAME))
    assert tree.collect(batch, 8).cache_hits == 1


def test_late_answers_of_another_network_do_not_enter_the_cache() -> None:
    tree = new_tree(game())
    batch = Batch(8)
    tree.collect(batch, 8)
    tree.abandon(batch)
    tree.clear_cache()
    tree.apply_random(batch)
    assert tree.collect(batch, 8).evaluations == 1
    tree.abandon(batch)
    changed = tree.params
    changed.policy_temperature = 2.0
    tree.set_params(changed)
    tree.apply_random(batch)
    assert tree.collect(batch, 8).evaluations == 1
    tree.abandon(batch)
    tree.apply_random(batch)
    assert tree.collect(batch, 8).cache_hits == 1


def test_abandoned_batch_is_cancelled_before_reuse() -> None:
    tree = new_tree(game())
    batch = Batch(8)
    tree.collect(batch, 8)
    tree.abandon(batch)
    tree.abandon(batch)
    with pytest.raises(RuntimeError, match="in flight"):
        tree.collect(batch, 8)
    tree.cancel(batch)
    assert tree.root_info().batches_in_flight == 0
    assert tree.collect(batch, 8).evaluations == 1
    with pytest.raises(RuntimeError, match="not collected"):
        new_tree().abandon(batch)
