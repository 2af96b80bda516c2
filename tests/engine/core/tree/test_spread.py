# SPDX-License-Identifier: GPL-3.0-or-later
"""The spread of a node's values, and moves chosen by a confidence bound."""

import math

import pytest

from engine._core import Tree
from tests.engine.core.tree.search_helpers import MIDDLEGAME, game, new_tree, search


def test_there_is_no_deviation_nor_doubt_of_what_is_proven() -> None:
    tree = new_tree(game("7k/8/5K2/6Q1/8/8/8/8 b - - 0 1"), value_choice_deviations=2.0)
    search(tree, 20000)
    proven = [child for child in tree.children() if child.proof is not None and child.visits > 10]
    lost = [line for line in tree.lines(100) if line.proof is not None and line.proof.value]
    assert proven and lost
    assert all(child.deviation == 0 for child in proven) and all(line.doubt == 0 for line in lost)


def test_many_visits_leave_the_deviation_right() -> None:
    tree = new_tree(game(MIDDLEGAME), value_choice_deviations=1.0, sticky_endgames=False)
    search(tree, 60000, batch_size=64)
    children = tree.children()
    squares = sum(c.visits * (c.deviation**2 + c.evaluation.q**2) for c in children)
    info = tree.root_info()
    # The root's deviation is that of its playouts, summed in double precision.
    mean_square = info.q_deviation**2 + info.evaluation.q**2
    assert squares / info.visits == pytest.approx(mean_square, abs=2e-3)


def bound(tree: Tree, deviations: float) -> dict[str, float]:
    """The confidence bounds of the root's moves with a prior of 0.2 in 4 visits."""
    return {
        child.move: child.evaluation.q
        - deviations
        * math.sqrt((4 * 0.2**2 + child.visits * child.deviation**2) / (4 + child.visits) / child.visits)
        for child in tree.children()
        if child.visits
    }


@pytest.mark.parametrize("deviations", [0.5, 3.0])
def test_chosen_move_has_the_best_bound_with_enough_visits(deviations: float) -> None:
    tree = new_tree(game(MIDDLEGAME), value_choice_share=0.1, value_choice_deviations=deviations)
    search(tree, 700)
    children = tree.children()
    most = max(child.visits for child in children)
    bounds = bound(tree, deviations)
    enough = [child.move for child in children if child.visits >= 0.1 * most]
    assert [child.move for child in children[: len(enough)]] == sorted(enough, key=lambda m: -bounds[m])
    values = [child.evaluation.q for child in children[: len(enough)]]
    assert values != sorted(values, reverse=True)  # The bound decides, not the value.


def test_a_line_tells_what_the_choice_takes_off_its_value() -> None:
    tree = new_tree(game(MIDDLEGAME), value_choice_deviations=2.0)
    search(tree, 700)
    bounds = bound(tree, 2.0)
    visited = [line for line in tree.lines(100) if line.visits]
    assert len(visited) > 5
    for line in visited:
        assert line.doubt is not None
        assert line.evaluation.q - line.doubt == pytest.approx(bounds[line.moves[0]], abs=1e-5)
    assert all(line.doubt is None for line in tree.lines(100) if not line.visits)
    plain = new_tree(game(MIDDLEGAME))
    search(plain, 100)
    assert all(line.doubt is None for line in plain.lines(100))
