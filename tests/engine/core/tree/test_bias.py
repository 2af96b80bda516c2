# SPDX-License-Identifier: GPL-3.0-or-later
"""The network's errors in searched positions correct its values in others after the same move."""

from __future__ import annotations

import pytest

from tests.engine.core.tree.plain_node import Rules
from tests.engine.core.tree.plain_search import PlainSearch, assert_the_same_search
from tests.engine.core.tree.search_helpers import game

PAWNS = "4k3/p6p/8/8/8/8/P6P/4K3 w - - 0 1"
OPENING = "rnbqkb1r/pp3ppp/4pn2/2pp4/3P4/2N1PN2/PP3PPP/R1BQKB1R w KQkq - 0 6"
PIECES = "r3k2r/1b4pp/8/3q4/3Q4/8/1B4PP/R3K2R w KQkq - 0 1"


# Moves that share a slot make the searches differ: in these positions they do not, or hardly.
@pytest.mark.parametrize("fen", [PAWNS, PIECES, OPENING])
def test_values_are_corrected_by_the_errors_after_the_same_move(fen: str) -> None:
    plain = assert_the_same_search(fen, 600, Rules(subtree_value_bias=0.7, sticky_endgames=True))
    usual = PlainSearch(game(fen), Rules(sticky_endgames=True))
    usual.run(600)
    assert plain.root.q != usual.root.q


def test_values_of_transpositions_are_not_corrected() -> None:
    assert_the_same_search(PAWNS, 800, Rules(subtree_value_bias=0.7, transposition_visits=4))
