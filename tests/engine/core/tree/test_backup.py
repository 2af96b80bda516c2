# SPDX-License-Identifier: GPL-3.0-or-later
"""Visits and values on their way from the leaves to the root."""

import math

import pytest

from engine._core import Batch, evaluate_randomly
from tests.engine.core.tree.search_helpers import MIDDLEGAME, children_by_move, game, new_tree, search


def test_root_value_is_the_mean_of_its_visits() -> None:
    tree = new_tree(game(MIDDLEGAME), sticky_endgames=False)
    batch = Batch(1)
    tree.collect(batch, 1)
    _, wdl, moves_left = evaluate_randomly(batch)
    tree.apply_random(batch)
    own = (wdl[0, 0] - wdl[0, 2], wdl[0, 1], moves_left[0])
    search(tree, 2000)
    info = tree.root_info()
    for index, (name, tolerance) in enumerate((("q", 1e-6), ("d", 1e-3), ("m", 1e-3))):
        total = own[index] + sum(getattr(c.evaluation, name) * c.visits for c in tree.children() if c.visits)
        assert getattr(info.evaluation, name) == pytest.approx(total / info.visits, abs=tolerance)


def test_root_has_the_networks_evaluation_and_its_spread() -> None:
    tree = new_tree(game(MIDDLEGAME))
    assert tree.root_info().own_evaluation is None
    assert tree.root_info().q_deviation == 0.0
    batch = Batch(1)
    tree.collect(batch, 1, 1)
    logits, wdl, moves_left = evaluate_randomly(batch)
    tree.apply(batch, logits, wdl, moves_left)
    own = tree.root_info().own_evaluation
    assert own is not None
    assert own.q == pytest.approx(wdl[0][0] - wdl[0][2])
    assert own.d == pytest.approx(wdl[0][1])
    assert own.m == pytest.approx(moves_left[0])
    assert tree.root_info().q_deviation == pytest.approx(0.0, abs=1e-6)

    search(tree, 1000)
    later = tree.root_info().own_evaluation
    assert later is not None
    assert later.q == own.q
    assert 0.0 < tree.root_info().q_deviation < 1.0
    tree.clear_cache()
    uncached = tree.root_info().own_evaluation
    assert uncached is not None
    assert uncached.q == pytest.approx(own.q, abs=2e-5)
    assert math.isnan(uncached.d)
    assert math.isnan(uncached.m)


def test_the_spread_of_values_is_their_standard_deviation() -> None:
    tree = new_tree(game(MIDDLEGAME), sticky_endgames=False)
    values = []
    for visits in range(1, 200):
        before = tree.root_info().evaluation.q * (visits - 1)
        search(tree, visits, batch_size=1)
        values.append(tree.root_info().evaluation.q * visits - before)
    mean = sum(values) / len(values)
    deviation = (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5
    assert tree.root_info().q_deviation == pytest.approx(deviation, abs=1e-5)


def test_the_draw_score_makes_draws_worse_for_the_side_that_must_win() -> None:
    # Taking the pawn leaves bare kings: with draws worth -1 for White that loses its charm.
    position = game("8/8/4k3/8/8/4p3/4K3/8 w - - 10 60")
    neutral, must_win = new_tree(position), new_tree(position, draw_score=-1.0)
    for tree in (neutral, must_win):
        search(tree, 2000)
    drawn = [children_by_move(tree)["e2e3"].visits for tree in (neutral, must_win)]
    assert drawn[1] < drawn[0]
