# SPDX-License-Identifier: GPL-3.0-or-later
"""Ends of the game in the tree, and the proofs that follow from them."""

import random

import pytest

from engine._core import Batch
from engine.search.loop.stopping import UNLIMITED_VISITS
from tests.engine.core.tree.search_helpers import children_by_move, game, new_tree, proof_of, search


@pytest.mark.parametrize(
    ("fen", "value", "plies", "best"),
    [
        ("6k1/5ppp/8/8/8/8/8/R5K1 w - - 0 1", 1, 1, "a1a8"),
        ("k7/8/1K6/8/8/8/8/7R w - - 0 1", 1, 1, "h1h8"),
        ("kbK5/pp6/1P6/8/8/8/8/R7 w - - 0 1", 1, 3, "a1a6"),
        ("7k/8/5K2/6Q1/8/8/8/8 b - - 0 1", -1, 2, "h8h7"),
    ],
)
def test_forced_mates_are_proven(fen: str, value: int, plies: int, best: str) -> None:
    tree = new_tree(game(fen))
    search(tree, 20000)
    proof = proof_of(tree.root_info())
    assert proof.value == value
    assert plies <= proof.plies <= plies + 6  # a longer mate may be proven first
    line = tree.lines(1)[0]
    assert line.moves[0] == best or proof.plies > plies
    assert len(line.moves) == proof.plies


def test_without_sticky_endgames_nothing_moves_up() -> None:
    tree = new_tree(game("kbK5/pp6/1P6/8/8/8/8/R7 w - - 0 1"), sticky_endgames=False)
    search(tree, 5000)
    assert tree.root_info().proof is None


@pytest.mark.parametrize(
    ("fen", "value"), [("7k/5KQ1/8/8/8/8/8/8 b - - 0 1", -1), ("7k/5K2/6Q1/8/8/8/8/8 b - - 0 1", 0)]
)
def test_a_finished_game_has_nothing_to_search(fen: str, value: int) -> None:
    tree = new_tree(game(fen))
    batch = Batch(8)
    for _ in range(3):
        result = tree.collect(batch, 8)
        assert result.evaluations == 0
        tree.apply_random(batch)
    assert tree.lines(5) == []
    assert tree.children() == []
    assert proof_of(tree.root_info()).value == value


def test_bare_material_and_the_fifty_move_rule_are_draws() -> None:
    tree = new_tree(game("8/8/4k3/8/8/4p3/4K3/8 w - - 10 60"))
    search(tree, 500)
    capture = children_by_move(tree)["e2e3"]
    assert (capture.evaluation.q, capture.evaluation.d, proof_of(capture).value) == (0.0, 1.0, 0)

    tree = new_tree(game("8/8/4k3/8/8/8/4K2R/8 w - - 99 100"))
    search(tree, 500)
    assert {proof_of(child).value for child in tree.children()} == {0}


@pytest.mark.parametrize("fen", ["7k/8/5K2/6Q1/8/8/8/8 w - - 0 1", "k7/8/1K6/8/8/8/8/7R w - - 0 1"])
def test_proofs_found_below_a_proven_root_leave_its_exact_value(fen: str) -> None:
    tree = new_tree(game(fen))
    batch = Batch(64)
    for _ in range(400):
        tree.collect(batch, 64)
        tree.apply_random(batch)
        info = tree.root_info()
        if info.proof is not None:
            assert (info.evaluation.q, info.evaluation.d) == (info.proof.value, info.proof.value == 0)
    assert proof_of(tree.root_info()).value == 1
    assert len([child for child in tree.children() if child.proof is not None]) > 1


def test_nothing_is_evaluated_when_every_move_is_decided() -> None:
    tree = new_tree(game("7k/8/5K2/6Q1/8/8/8/8 b - - 0 1"))
    search(tree, 20000)
    solved = tree.root_info()
    assert proof_of(solved).value == -1
    batch = Batch(256)
    result = tree.collect(batch, 256)
    assert (result.evaluations, result.cache_hits, result.collision_visits) == (0, 0, 0)
    assert tree.root_info().visits == solved.visits + result.visits_done
    tree.cancel(batch)
    assert tree.root_info().evaluation.q == -1


@pytest.mark.parametrize(
    ("fen", "size", "ahead", "in_flight", "seed"),
    [
        ("2Q5/8/2R5/8/8/8/2K5/k7 w - - 0 1", 64, 64, 2, 13),
        ("2Q5/8/2R5/8/8/8/2K5/k7 w - - 0 1", 64, 64, 2, 16),
        ("6k1/Q7/8/4Q3/8/8/8/5K2 w - - 0 1", 256, 0, 4, 29),
    ],
)
def test_a_mate_is_as_long_as_its_line(fen: str, size: int, ahead: int, in_flight: int, seed: int) -> None:
    """Batches under way when a mate is proven may hold a quicker one below it."""
    order = random.Random(seed)
    tree = new_tree(game(fen))
    free = [Batch(size + ahead) for _ in range(in_flight)]
    sent: list[Batch] = []
    mates = 0
    for _step in range(60):
        while free:
            batch = free.pop()
            tree.collect(batch, size, UNLIMITED_VISITS, ahead)
            sent.append(batch)
        answered = sent.pop(order.randrange(len(sent)))
        tree.apply_random(answered)
        free.append(answered)
        for line in tree.lines(60):
            if line.proof is not None and line.proof.value:
                assert len(line.moves) == line.proof.plies
                mates += 1
    assert mates
    for batch in sent:
        tree.cancel(batch)
