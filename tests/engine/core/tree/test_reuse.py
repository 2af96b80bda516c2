"""What the tree keeps when the game goes on, and what it forgets."""

from __future__ import annotations

import pytest

from engine._core import Game
from tests.engine.core.tree.search_helpers import MIDDLEGAME, children_by_move, game, new_tree, params, search


def test_the_tree_follows_the_game() -> None:
    tree = new_tree(game(MIDDLEGAME))
    search(tree, 4000)
    line = tree.lines(1)[0]
    visits = children_by_move(tree)[line.moves[0]].visits
    kept = tree.set_position(game(MIDDLEGAME, line.moves[:1]))
    assert kept == visits
    assert tree.root_info().playouts == 0
    kept = tree.set_position(game(MIDDLEGAME, line.moves[:3]))
    assert 0 < kept < visits
    search(tree, kept + 1000)
    assert tree.root_info().visits == kept + 1000


def test_another_game_or_a_takeback_starts_afresh() -> None:
    tree = new_tree(game(MIDDLEGAME))
    search(tree, 1000)
    assert tree.set_position(game(MIDDLEGAME)) == 1000  # the same position keeps everything
    assert tree.set_position(game(MIDDLEGAME, ["e1g1"])) > 0
    assert tree.set_position(game(MIDDLEGAME)) == 0
    search(tree, 1000)
    assert tree.set_position(game()) == 0


def test_a_position_in_which_the_king_could_be_taken_is_refused() -> None:
    tree = new_tree(game())
    with pytest.raises(ValueError, match="king"):
        tree.set_position(Game("4k3/8/8/8/8/8/8/4RK2 w - - 0 1", allow_opponent_check=True))
    search(tree, 10)
    assert tree.root_info().visits == 10


def test_positions_evaluated_before_come_from_the_cache() -> None:
    tree = new_tree(game(MIDDLEGAME))
    search(tree, 2000, batch_size=1)
    first = {c.move: c.visits for c in tree.children()}
    tree.clear()
    search(tree, 2000, batch_size=1)
    info = tree.root_info()
    assert info.evaluations == 0
    assert info.cache_hits > 0
    assert {c.move: c.visits for c in tree.children()} == first
    tree.clear_cache()
    tree.clear()
    search(tree, 2000)
    assert tree.root_info().evaluations > 0


def test_settings_that_evaluations_depend_on_clear_tree_and_cache() -> None:
    tree = new_tree(game(MIDDLEGAME))
    search(tree, 500)
    tree.set_params(params(cpuct=2.5))
    assert tree.root_info().visits == 500
    tree.set_params(params(cpuct=2.5, draw_score=-0.5))  # matters when moves are chosen
    assert tree.root_info().visits == 500
    tree.set_params(params(cpuct=2.5, policy_temperature=1.0))
    assert tree.root_info().visits == 0
    search(tree, 500)
    assert tree.root_info().evaluations > 100
