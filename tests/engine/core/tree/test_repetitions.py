# SPDX-License-Identifier: GPL-3.0-or-later
"""Repetitions in the searched line, and what becomes of them as the game goes on."""

import pytest

from engine._core import Batch, RootInfo, Tree
from tests.engine.core.tree.search_helpers import children_by_move, game, new_tree, proof_of, search

# Each side has one legal move, its king's step to the corner and back, but for White's a2a3 at the start.
SHUFFLE = "5bk1/4p1p1/4P1P1/8/p7/4p1p1/P3P1P1/5BK1 w - - 0 1"
PAWN_MOVE = "a2a3"
CYCLE = ["g8h8", "g1h1", "h8g8", "h1g1"]

# Little but shuffling is left: the search is full of cycles.
BISHOPS = "k7/8/8/8/8/5b2/8/6BK w - - 0 1"

# A rook against the bare king: mates are proven beside lines that repeat.
ROOK = "8/r4k1K/8/8/8/8/8/8 w - - 0 1"


def assert_same(found: RootInfo, expected: RootInfo) -> None:
    """Compare visits and values; single precision is left of a mean from which most visits were taken."""
    assert found.visits == expected.visits
    for name in ("q", "d", "m"):
        value = getattr(expected.evaluation, name)
        assert getattr(found.evaluation, name) == pytest.approx(value, rel=1e-4, abs=1e-5)


def visit_once(tree: Tree) -> None:
    batch = Batch(1)
    tree.collect(batch, 1, 1)
    tree.apply_random(batch)


def test_a_repetition_in_the_searched_line_is_a_draw() -> None:
    tree = new_tree(game("k7/8/8/8/8/8/7r/K6R w - - 0 1", ["h1g1", "h2g2"]))
    search(tree, 3000)
    assert tree.root_info().visits == 3000
    third = game("7k/8/8/8/8/8/R7/K7 w - - 0 1", ["a2b2", "h8g8", "b2a2", "g8h8", "a2b2", "h8g8", "b2a2"])
    tree = new_tree(third)
    search(tree, 200)
    repeated = children_by_move(tree)["g8h8"]
    assert (repeated.evaluation.d, proof_of(repeated).value) == (1.0, 0)


def test_two_fold_draw_is_undone_by_history() -> None:
    """The line is forced, so that a fresh search from a later position shows what must be left of it.

    Ply 1 is the position after the pawn move, and ply 5, four plies later, repeats it: a draw with 95 of the
    100 visits. It stays one with ply 1 at the root. With ply 2 there the first visit that comes to it undoes
    it and goes on where the draw was: one visit more than what is left.
    """
    tree = new_tree(game(SHUFFLE))
    tree.set_root_moves([PAWN_MOVE])
    search(tree, 100)
    assert tree.root_info().max_depth == 6

    played = [PAWN_MOVE]
    assert tree.set_position(game(SHUFFLE, played)) == 99
    fresh = new_tree(game(SHUFFLE, played))
    search(fresh, 99)
    assert_same(tree.root_info(), fresh.root_info())
    assert tree.root_info().evaluation.d > 0.9

    # Two rounds of the cycle: what is searched after an undo is undone in its turn.
    for move in CYCLE[:3]:
        played.append(move)
        assert tree.set_position(game(SHUFFLE, played)) > 90
        visit_once(tree)
        fresh = new_tree(game(SHUFFLE, played))
        search(fresh, 4)
        assert_same(tree.root_info(), fresh.root_info())
        search(tree, 100)
        search(fresh, 100)
        assert_same(tree.root_info(), fresh.root_info())


def test_the_deviation_is_that_of_what_is_left_of_very_many_visits() -> None:
    settings = {"value_choice_deviations": 2.0}
    for visits in (100_000, 150_000, 200_000):
        tree = new_tree(game(SHUFFLE), **settings)
        tree.set_root_moves([PAWN_MOVE])
        search(tree, visits)
        played = [PAWN_MOVE, CYCLE[0]]
        assert tree.set_position(game(SHUFFLE, played)) > visits - 10
        visit_once(tree)
        fresh = new_tree(game(SHUFFLE, played), **settings)
        search(fresh, 4)
        (found,), (expected,) = tree.children(), fresh.children()
        assert found.visits == expected.visits
        assert found.deviation == pytest.approx(expected.deviation, abs=0.005)


def test_a_game_that_continues_at_a_two_fold_draw_is_searched_there() -> None:
    tree = new_tree(game(SHUFFLE))
    tree.set_root_moves([PAWN_MOVE])
    search(tree, 100)
    played = [PAWN_MOVE, *CYCLE]
    assert tree.set_position(game(SHUFFLE, played)) == 0
    search(tree, 100)
    fresh = new_tree(game(SHUFFLE, played))
    search(fresh, 100)
    assert_same(tree.root_info(), fresh.root_info())


def play_on(tree: Tree, fen: str, played: list[str]) -> None:
    """Play the most visited move whose value is not proven, in the tree and in `played`."""
    open_moves = [child for child in tree.children() if child.proof is None]
    played.append(max(open_moves, key=lambda child: child.visits).move)
    following = game(fen, played)
    assert following.result()[0] == "undecided"
    tree.set_position(following)


def search_and_check(tree: Tree, visits: int) -> int:
    """Search until the root has so many visits more; returns how many were taken back meanwhile.

    Visits and values of the root must be the sums of what its moves have, and proven values exact.
    """
    kept = tree.root_info().visits
    search(tree, kept + visits)
    tree.clear_cache()  # It may know the position with another history, by which evaluations differ.
    root, children = tree.root_info(), [child for child in tree.children() if child.visits]
    assert root.visits == 1 + sum(child.visits for child in children)
    assert root.own_evaluation is not None
    if root.proof is None:
        values = root.own_evaluation.q + sum(child.visits * child.evaluation.q for child in children)
        assert root.evaluation.q == pytest.approx(values / root.visits, abs=1e-5)
    for child in children:
        if child.proof is not None:
            assert child.evaluation.q == pytest.approx(child.proof.value)
    return kept + root.playouts - root.visits


@pytest.mark.parametrize(("fen", "visits", "moves"), [(BISHOPS, 4000, 6), (ROOK, 2000, 2)])
def test_visits_and_values_add_up_after_two_fold_draws_are_undone(fen: str, visits: int, moves: int) -> None:
    """A position with a draw by repetition below it may be lost all the same; the draw's visits leave it."""
    tree = new_tree(game(fen))
    played: list[str] = []
    search(tree, visits)
    undone = 0
    for _ in range(moves):
        play_on(tree, fen, played)
        undone += search_and_check(tree, visits)
    assert undone > 0
    assert fen != ROOK or any(child.proof is not None for child in tree.children())


def test_two_fold_draws_are_undone_after_several_moves() -> None:
    tree = new_tree(game(BISHOPS))
    search(tree, 20000)
    played: list[str] = []
    for _ in range(3):
        play_on(tree, BISHOPS, played)
    assert search_and_check(tree, 4000) > 0
