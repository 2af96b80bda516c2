# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tree keeps when the game goes on, and what it forgets."""

import pytest

from engine._core import Game
from tests.engine.core.tree.search_helpers import MIDDLEGAME, children_by_move, game, new_tree, search

ALL = 1000
"""Positions before the root that a tree keeps for analysis."""


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


def line_of(plies: int) -> list[str]:
    """The moves of a game from the middle game."""
    return ["e1g1", "e8g8", "h2h3", "h7h6"][:plies]


def test_analysis_goes_forward_back_and_sideways_in_its_tree() -> None:
    tree = new_tree(game(MIDDLEGAME))
    search(tree, 3000)
    best, other = (line.moves[0] for line in tree.lines(2))
    visits = {move: child.visits for move, child in children_by_move(tree).items()}
    assert tree.set_position(game(MIDDLEGAME, [best]), ALL) == visits[best]
    search(tree, visits[best] + 500)
    assert tree.set_position(game(MIDDLEGAME, [other]), ALL) == visits[other]
    assert tree.set_position(game(MIDDLEGAME), ALL) == 3500
    assert tree.set_position(game(MIDDLEGAME, [best]), ALL) == visits[best] + 500


def test_analysis_goes_back_before_its_first_position() -> None:
    tree = new_tree(game(MIDDLEGAME, line_of(4)))
    search(tree, 2000)
    value = tree.root_info().evaluation.q
    for plies in (3, 1, 0):  # a step, two, and one before anything was searched
        assert tree.set_position(game(MIDDLEGAME, line_of(plies)), ALL) == 0
        if plies:
            search(tree, 1500)
    search(tree, 6000)
    info = tree.root_info()
    assert info.visits == 6000
    assert info.playouts < 4500
    assert info.mean_depth > 2
    for plies in (1, 2, 3, 4):
        kept = tree.set_position(game(MIDDLEGAME, line_of(plies)), ALL)
    assert kept >= 2000
    assert tree.root_info().evaluation.q == pytest.approx(value, abs=0.2)


def test_analysis_returns_at_once_to_a_tree_that_still_waits() -> None:
    tree = new_tree(game(MIDDLEGAME, line_of(4)))
    search(tree, 2000)
    for plies in (2, 1, 4):
        kept = tree.set_position(game(MIDDLEGAME, line_of(plies)), ALL)
    assert kept == 2000
    assert tree.set_position(game(MIDDLEGAME, line_of(1)), ALL) == 0
    # A game that is played on keeps what is ahead of it alone.
    assert tree.set_position(game(MIDDLEGAME, line_of(4)[:3]), 0) == 0


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


@pytest.mark.parametrize("plies", [0, 1, 2, 3, 4])
def test_a_position_of_the_tree_is_found_by_its_fen(plies: int) -> None:
    tree = new_tree(game(MIDDLEGAME))
    search(tree, 20000)
    line = tree.lines(1)[0].moves[:plies]
    fen = game(MIDDLEGAME, line).fen()
    followed = new_tree(game(MIDDLEGAME))
    search(followed, 20000)
    assert tree.set_position(game(fen)) == followed.set_position(game(MIDDLEGAME, line)) > 0
    assert [child.visits for child in tree.children()] == [child.visits for child in followed.children()]
    reply = tree.lines(1)[0].moves[0]
    kept = followed.set_position(game(MIDDLEGAME, [*line, reply]))
    assert tree.set_position(game(fen, [reply])) == kept > 0


def test_fen_with_another_clock_or_right_differs() -> None:
    tree = new_tree(game(MIDDLEGAME))
    for fen in (MIDDLEGAME.replace(" 6 5", " 7 5"), MIDDLEGAME.replace("KQkq", "Kkq")):
        tree.set_position(game(MIDDLEGAME))
        search(tree, 1000)
        assert tree.set_position(game(fen)) == 0


def test_a_game_without_history_keeps_no_draws_by_third_repetition() -> None:
    shuffle = "5bk1/4p1p1/4P1P1/8/p7/4p1p1/P3P1P1/5BK1 w - - 0 1"
    played = game(shuffle, ["a2a3", "g8h8", "g1h1", "h8g8", "h1g1"])  # the position after a2a3 again
    tree = new_tree(played)
    search(tree, 1000)
    assert tree.root_info().proof is not None
    assert tree.set_position(game(played.fen())) == 0
    search(tree, 1000)
    assert tree.root_info().proof is None


def test_other_moves_are_kept_while_the_opponent_thinks() -> None:
    tree = new_tree(game(MIDDLEGAME, ["e1g1"]))
    search(tree, 5000)
    replies = [child for child in tree.children() if child.visits > 20]
    expected, other = replies[0], replies[1]
    before = tree.root_info()
    assert tree.set_position(game(MIDDLEGAME, ["e1g1", expected.move]), keep_before=1) == expected.visits
    search(tree, expected.visits + 3000)
    pondered = tree.root_info()
    # Nothing has been forgotten above, and what was found below is known there.
    assert tree.set_position(game(MIDDLEGAME, ["e1g1"])) == before.visits + 3000
    now = tree.root_info()
    sums = [-before.evaluation.q * before.visits, expected.evaluation.q * expected.visits]
    assert -now.evaluation.q * now.visits == pytest.approx(
        sums[0] + sums[1] + pondered.evaluation.q * pondered.visits, abs=1e-3
    )
    assert sum(child.visits for child in tree.children()) == now.visits - 1
    assert tree.set_position(game(MIDDLEGAME, ["e1g1", other.move])) == other.visits


def test_an_expected_move_that_was_never_searched_leaves_the_others() -> None:
    tree = new_tree(game(MIDDLEGAME))
    search(tree, 5)
    unvisited = next(child.move for child in tree.children() if child.visits == 0)
    visited = next(child for child in tree.children() if child.visits > 0)
    assert tree.set_position(game(MIDDLEGAME, [unvisited]), keep_before=1) == 0
    search(tree, 1000)
    assert tree.set_position(game(MIDDLEGAME, [visited.move])) == visited.visits
    assert tree.set_position(game(MIDDLEGAME, [unvisited])) == 0  # cut off now


def test_positions_before_the_root_go_with_the_next_move() -> None:
    tree = new_tree(game(MIDDLEGAME), tree_bytes=4 << 20)
    search(tree, 15000)
    line = tree.lines(1)[0].moves
    tree.set_position(game(MIDDLEGAME, line[:1]), keep_before=1)
    kept = tree.root_info().memory_bytes
    tree.set_position(game(MIDDLEGAME, line[:2]))
    visits = tree.root_info().visits
    search(tree, visits + 5000)
    assert tree.root_info().memory_bytes < kept
    assert tree.set_position(game(MIDDLEGAME)) == 0
