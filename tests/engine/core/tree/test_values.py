# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of positions that are more than the mean of their visits: known draws, and corrections by the errors
of the network in others."""

import pytest

from tests.engine.core.tree.plain_node import Rules
from tests.engine.core.tree.plain_search import PlainSearch, assert_the_same_search
from tests.engine.core.tree.search_helpers import game

OPENING = "rnbqkb1r/pp3ppp/4pn2/2pp4/3P4/2N1PN2/PP3PPP/R1BQKB1R w KQkq - 0 6"
PIECES = "r3k2r/1b4pp/8/3q4/3Q4/8/1B4PP/R3K2R w KQkq - 0 1"
DRAW_BY_CAPTURE = "8/8/4k3/8/8/4p3/4K3/8 w - - 10 60"
PAWNS = "4k3/p6p/8/8/8/8/P6P/4K3 w - - 0 1"
FIFTY_MOVES = "8/8/4k3/8/8/4p2r/4K3/7R w - - 97 100"
BLOCKED = "6k1/4p1p1/4P1P1/8/8/4p1p1/4P1P1/6K1 w - - 0 1"


def value_without(rules: Rules, fen: str, visits: int) -> float:
    plain = PlainSearch(game(fen), rules)
    plain.run(visits)
    return plain.root.q


@pytest.mark.parametrize("fen", [DRAW_BY_CAPTURE, FIFTY_MOVES])
def test_a_position_is_worth_no_less_than_a_draw_that_is_proven(fen: str) -> None:
    rules = Rules(known_draws="proven", sticky_endgames=True)
    plain = assert_the_same_search(fen, 400, rules)
    assert plain.root.q >= 0
    assert plain.root.q != value_without(Rules(sticky_endgames=True), fen, 400)


def test_a_position_is_worth_no_less_than_a_repetition() -> None:
    rules = Rules(known_draws="repetition", sticky_endgames=True, two_fold_draws=True)
    plain = assert_the_same_search(BLOCKED, 500, rules)
    for draws in ("off", "proven"):
        other = Rules(known_draws=draws, sticky_endgames=True, two_fold_draws=True)
        assert plain.root.q != value_without(other, BLOCKED, 500)


# Moves that share a slot make the searches differ: in these positions they do not, or hardly.
@pytest.mark.parametrize("fen", [PAWNS, PIECES, OPENING])
def test_values_are_corrected_by_the_errors_after_the_same_move(fen: str) -> None:
    plain = assert_the_same_search(fen, 600, Rules(subtree_value_bias=0.7, sticky_endgames=True))
    assert plain.root.q != value_without(Rules(sticky_endgames=True), fen, 600)


def test_values_of_transpositions_are_not_corrected() -> None:
    assert_the_same_search(PAWNS, 800, Rules(subtree_value_bias=0.7, transposition_visits=4))
