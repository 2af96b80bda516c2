# SPDX-License-Identifier: GPL-3.0-or-later
"""Rules on the moves searched below the root, and the visits of a line's moves."""

import pytest

from engine._core import Batch, Tree
from tests.engine.core.tree.search_helpers import MIDDLEGAME, game, new_tree, search


def searched(tree: Tree, move: str) -> set[str]:
    """The second moves of all lines after a root move that some search has ended in."""
    tree.set_position(game(None, [move]))
    return {child.move for child in tree.children() if child.visits}


def test_a_reply_to_be_avoided_is_not_searched() -> None:
    tree = new_tree(game())
    tree.set_root_moves(["e2e4"])
    tree.set_move_rules([(False, ["e7e5", "c7c5"], 2, False)])
    search(tree, 2000)
    replies = searched(tree, "e2e4")
    assert replies
    assert not replies & {"e7e5", "c7c5"}


def test_only_the_allowed_replies_are_searched() -> None:
    tree = new_tree(game())
    tree.set_root_moves(["e2e4"])
    tree.set_move_rules([(False, ["e7e5", "c7c5"], 2, True)])
    search(tree, 500)
    assert searched(tree, "e2e4") == {"e7e5", "c7c5"}


def test_a_rule_ends_at_its_depth_and_is_for_one_side() -> None:
    tree = new_tree(game())
    tree.set_root_moves(["g1f3"])
    tree.set_move_rules([(False, ["g8f6"], 2, True), (True, ["f3g1"], 3, True)])
    search(tree, 2000)
    tree.set_position(game(None, ["g1f3", "g8f6"]))
    assert {child.move for child in tree.children() if child.visits} == {"f3g1"}
    tree.set_position(game(None, ["g1f3", "g8f6", "f3g1"]))
    assert len([child for child in tree.children() if child.visits]) > 5


def test_all_moves_are_searched_when_the_rules_exclude_all() -> None:
    tree = new_tree(game())
    tree.set_root_moves(["e2e4"])
    tree.set_move_rules([(False, ["a1a2"], 2, True)])
    search(tree, 2000)
    assert len(searched(tree, "e2e4")) > 5


@pytest.mark.parametrize("spelling", ["e8g8", "e8h8"])
def test_castling_is_understood_in_both_spellings(spelling: str) -> None:
    start = game(MIDDLEGAME, ["d2d3"])
    moves = start.legal_moves()
    assert "e8g8" in moves
    tree = new_tree(game(MIDDLEGAME))
    tree.set_root_moves(["d2d3"])
    tree.set_move_rules([(False, [spelling], 2, True)])
    search(tree, 100)
    tree.set_position(start)
    assert {child.move for child in tree.children() if child.visits} == {"e8g8"}


def test_a_forbidden_defence_proves_no_mate() -> None:
    """Black's only move out of the net is not searched; the mate that follows the others is not proven."""
    tree = new_tree(game("6k1/5ppp/8/8/8/8/1r3PPP/R5K1 w - - 0 1"))
    tree.set_root_moves(["a1a8"])
    tree.set_move_rules([(False, ["b2b8"], 2, False)])
    search(tree, 200)
    proof = tree.root_info().proof
    assert proof is None or proof.value < 1


def test_other_rules_are_another_tree() -> None:
    tree = new_tree(game())
    search(tree, 100)
    tree.set_move_rules([])
    assert tree.root_info().visits == 100
    tree.set_move_rules([(True, ["e2e4"], 3, False)])
    assert tree.root_info().visits == 0


def test_rules_are_checked() -> None:
    tree = new_tree(game())
    with pytest.raises(ValueError, match="at least 1"):
        tree.set_move_rules([(True, ["e2e4"], 0, False)])
    batch = Batch(4)
    tree.collect(batch, 4)
    with pytest.raises(RuntimeError, match="in flight"):
        tree.set_move_rules([(True, ["e2e4"], 2, False)])
    tree.cancel(batch)


def test_the_visits_of_a_line_are_those_of_its_moves() -> None:
    tree = new_tree(game(MIDDLEGAME))
    search(tree, 1000)
    for line in tree.lines(50):
        assert len(line.move_visits) == len(line.moves)
        assert line.move_visits[0] == line.visits
        assert line.move_visits == sorted(line.move_visits, reverse=True)
