# SPDX-License-Identifier: GPL-3.0-or-later
"""The memory of the tree: bounded, small, used again, and pruned when it is full."""

from collections.abc import Callable

import pytest

from engine._core import Batch, Game, SearchParams, Tree
from engine.options import Options
from engine.search.player.tree import search_params
from tests.engine.core.tree.search_helpers import MIDDLEGAME, game, params, search

MIB = 1 << 20

NewTree = Callable[..., Tree]


def shipped_params() -> SearchParams:
    """What the engine searches with when no option is set."""
    return search_params(Options(), input_format=1)


@pytest.fixture(params=[params, shipped_params], ids=["core", "shipped"])
def new_tree(request: pytest.FixtureRequest) -> NewTree:
    """Makes trees of a position and memory, by lc0's parameters and by the options' defaults."""

    def made(position: Game, tree_bytes: int = 64 * MIB, cache_bytes: int = 8 * MIB) -> Tree:
        settings: SearchParams = request.param()
        settings.tree_bytes, settings.cache_bytes = tree_bytes, cache_bytes
        tree = Tree(settings)
        tree.set_position(position)
        return tree

    return made


def fill(tree: Tree) -> int:
    """Search until the tree is full; returns the visits of the root then."""
    batch = Batch(128)
    while not tree.collect(batch, 128).full:
        tree.apply_random(batch)
    tree.cancel(batch)
    return tree.root_info().visits


def test_memory_of_moves_not_played_is_used_again(new_tree: NewTree) -> None:
    tree = new_tree(game(MIDDLEGAME))
    moves: list[str] = []
    used = []
    for _ in range(12):
        search(tree, 5000)
        used.append(tree.root_info().memory_bytes)
        moves.append(tree.lines(1)[0].moves[0])
        tree.set_position(game(MIDDLEGAME, moves))
    assert max(used) < 2.5 * used[0]


@pytest.mark.integration
def test_a_full_tree_is_pruned_and_searched_on(new_tree: NewTree) -> None:
    tree = new_tree(game(MIDDLEGAME), tree_bytes=8 * MIB, cache_bytes=0)
    full = fill(tree)
    search(tree, 10 * full, batch_size=128)
    info = tree.root_info()
    assert info.full
    assert info.visits == 10 * full
    assert info.memory_bytes <= 8 * MIB
    assert info.hashfull >= 850
    # Statistics outlive what they were taken from.
    children = [child for child in tree.children() if child.visits]
    assert sum(child.visits for child in children) == info.visits - 1
    assert all(abs(child.evaluation.q) <= 1 and 0 <= child.evaluation.d <= 1 for child in children)
    assert len(tree.lines(1)[0].moves) >= 4  # And what is worth most is still there.


@pytest.mark.integration
def test_a_full_tree_holds_as_much_move_after_move(new_tree: NewTree) -> None:
    tree = new_tree(game(MIDDLEGAME), tree_bytes=8 * MIB, cache_bytes=0)
    moves: list[str] = []
    first = fill(tree)
    for _ in range(30):
        moves.append(tree.lines(1)[0].moves[0])
        tree.set_position(game(MIDDLEGAME, moves))
        assert tree.root_info().proof is None  # or the search would not fill it
        assert fill(tree) >= 0.8 * first  # Positions with more moves take more.
        assert tree.root_info().hashfull >= 850


def test_batches_in_flight_survive_pruning(new_tree: NewTree) -> None:
    tree = new_tree(game(MIDDLEGAME), tree_bytes=2 * MIB, cache_bytes=0)
    fill(tree)
    waiting = [Batch(64) for _ in range(4)]
    for batch in waiting:
        assert tree.collect(batch, 64).evaluations > 0
    search(tree, tree.root_info().visits + 50_000, batch_size=64)
    before = tree.root_info().visits
    sizes = [batch.size for batch in waiting]
    for batch in waiting[:2]:
        tree.apply_random(batch)
    for batch in waiting[2:]:
        tree.cancel(batch)
    assert tree.root_info().visits == before + sum(sizes[:2])
    assert all(child.in_flight == 0 for child in tree.children())


def test_a_game_continues_where_the_tree_was_pruned(new_tree: NewTree) -> None:
    """Every position of the tree can become the root, whatever is left of it."""
    tree = new_tree(game(MIDDLEGAME), tree_bytes=2 * MIB, cache_bytes=0)
    moves: list[str] = []
    for _ in range(6):
        fill(tree)
        search(tree, tree.root_info().visits + 30_000, batch_size=64)
        moves.append(tree.children()[-1].move)  # the worst
        kept = tree.set_position(game(MIDDLEGAME, moves))
        assert kept == tree.root_info().visits
        if kept:
            assert tree.lines(1)
        search(tree, kept + 100)
        assert tree.root_info().visits == kept + 100


def test_less_memory_holds_at_once(new_tree: NewTree) -> None:
    tree = new_tree(game(MIDDLEGAME), tree_bytes=8 * MIB, cache_bytes=0)
    fill(tree)
    smaller = tree.params
    smaller.tree_bytes = 4 * MIB
    tree.set_params(smaller)
    assert tree.root_info().memory_bytes <= 4 * MIB
    fill(tree)
    assert tree.root_info().memory_bytes <= 4 * MIB


def test_hashfull_is_the_part_of_the_memory_in_use(new_tree: NewTree) -> None:
    tree = new_tree(game(MIDDLEGAME), tree_bytes=8 * MIB, cache_bytes=0)
    for visits in (1000, 10_000, 20_000):
        search(tree, visits)
        info = tree.root_info()
        assert info.hashfull == pytest.approx(1000 * info.memory_bytes / (8 * MIB), rel=0.02, abs=1)
        assert info.hashfull == pytest.approx(visits * 185 * 1000 / (8 * MIB), rel=0.15)
