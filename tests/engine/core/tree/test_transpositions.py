# SPDX-License-Identifier: GPL-3.0-or-later
"""Positions reached by several move orders: the value of a search in one line is used in another."""

from typing import Any

import pytest

from engine._core import Batch, Game
from tests.engine.core.tree.plain_node import Rules
from tests.engine.core.tree.plain_search import PlainSearch, assert_the_same_search
from tests.engine.core.tree.search_helpers import game, new_tree, params, search

# Few moves, most of which can be played in any order.
PAWNS = "4k3/p6p/8/8/8/8/P6P/4K3 w - - 0 1"


@pytest.mark.parametrize("least", [2, 8])
def test_a_position_searched_elsewhere_has_the_value_of_that_search(least: int) -> None:
    plain = assert_the_same_search(PAWNS, 800, Rules(transposition_visits=least))
    usual = PlainSearch(game(PAWNS), Rules())
    usual.run(800)
    assert plain.root.q != usual.root.q


THERE = ["h2h4", "e8d8", "a2a4"]


def value_after(moves: list[str], least: int) -> float:
    """The value of the first visit to a position that 100 visits have searched by another way."""
    tree = new_tree(game(PAWNS, THERE), transposition_visits=least)
    search(tree, 100)
    tree.set_position(game(PAWNS, moves))
    batch = Batch(1)
    result = tree.collect(batch, 1, 1)
    assert (result.evaluations, result.cache_hits) == (0, 1)
    tree.cancel(batch)
    return tree.root_info().evaluation.q


def test_searched_value_replaces_the_networks_after_visits() -> None:
    moves = ["a2a4", "e8d8", "h2h4"]
    tree = new_tree(game(PAWNS, THERE))
    search(tree, 1)
    own = tree.root_info().evaluation.q
    assert value_after(moves, 0) == pytest.approx(own)
    assert value_after(moves, 128) == pytest.approx(own)
    search(tree, 63)  # What the cache was told last: 63 visits were done, and one was begun.
    searched = tree.root_info().evaluation.q
    for least in (2, 32):
        assert value_after(moves, least) == pytest.approx(searched, abs=0.05)
        assert value_after(moves, least) != pytest.approx(own, abs=1e-3)


def test_a_search_of_some_moves_alone_tells_the_cache_nothing() -> None:
    tree = new_tree(game(PAWNS), transposition_visits=2)
    search(tree, 1)
    own = tree.root_info().evaluation.q
    tree.set_root_moves(["a2a3"])
    search(tree, 300)
    tree.clear()
    search(tree, 1)
    assert tree.root_info().evaluation.q == pytest.approx(own)
    tree.set_root_moves([])
    search(tree, 300)
    tree.clear()
    search(tree, 1)
    assert tree.root_info().evaluation.q != pytest.approx(own, abs=1e-3)


def test_the_network_s_own_value_is_still_told() -> None:
    tree = new_tree(game(PAWNS), transposition_visits=2)
    search(tree, 1)
    own = tree.root_info().evaluation.q
    search(tree, 500)
    known = tree.root_info().own_evaluation
    assert known is not None
    assert known.q == pytest.approx(own)


@pytest.mark.parametrize(
    "changed",
    [{"wdl_ratio": 0.5}, {"wdl_shift": 0.1}, {"two_fold_draws": False}, {"transposition_visits": 3}],
)
def test_a_change_forgets_values_of_searches_and_keeps_evaluations(changed: dict[str, Any]) -> None:
    position: Game = game(PAWNS)
    tree = new_tree(position, transposition_visits=2)
    search(tree, 300)
    tree.set_params(params(**{"transposition_visits": 2, **changed}))
    result = tree.collect(Batch(1), 1, 1)
    assert (result.evaluations, result.cache_hits) == (0, 1)
    fresh = new_tree(position, **{"transposition_visits": 2, **changed})
    search(fresh, 1)
    assert tree.root_info().evaluation.q == pytest.approx(fresh.root_info().evaluation.q)


@pytest.mark.parametrize("cache_bytes", [3000, 20_000, 20_008, 1 << 20])
def test_change_forgets_values_of_an_overwritten_cache(cache_bytes: int) -> None:
    tree = new_tree(game(PAWNS), transposition_visits=1, cache_bytes=cache_bytes)
    for two_fold_draws in (False, True, False, True):
        search(tree, 500)
        tree.set_params(
            params(transposition_visits=1, cache_bytes=cache_bytes, two_fold_draws=two_fold_draws)
        )
        search(tree, 12)
        once = [child for child in tree.children(own_values=True) if child.visits == 1]
        assert once
        for child in once:
            assert child.evaluation.q == pytest.approx(child.own_q, abs=1e-4)


def test_moves_keep_the_networks_own_values() -> None:
    tree = new_tree(game(PAWNS), transposition_visits=2, wdl_ratio=0.9)
    search(tree, 300)
    tree.clear()
    search(tree, 60)
    plain = new_tree(game(PAWNS))
    search(plain, 300)
    own = {child.move: child.own_q for child in plain.children(own_values=True)}
    found = {child.move: child.own_q for child in tree.children(own_values=True) if child.visits}
    assert len(found) > 2
    assert found == pytest.approx({move: own[move] for move in found}, abs=1e-6)
    assert all(child.own_q is None for child in tree.children())
