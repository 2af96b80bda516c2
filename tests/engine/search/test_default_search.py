# SPDX-License-Identifier: GPL-3.0-or-later
"""The core's tree with default options against the plain search of docs/explanation/search.md, visit by
visit, through games in which the tree is kept. Errors of the network do not correct its values
(core/tree/test_values.py), as those of abandoned positions are forgotten step by step."""

from collections.abc import Sequence
from dataclasses import fields, replace
from random import Random
from typing import Any

import pytest

from engine._core import Game, SearchParams, Tree
from engine.options import Options
from engine.search.player.tree import search_params
from tests.engine.core.tree.plain_node import Rules
from tests.engine.core.tree.plain_search import PlainSearch
from tests.engine.core.tree.search_helpers import MIDDLEGAME, children_by_move, game, search

START = Game().fen()
PAWN_ENDING = "8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 b - - 0 1"
BISHOPS = "k7/8/8/8/8/5b2/8/6BK w - - 0 1"
PAWNS = "4k3/p6p/8/8/8/8/P6P/4K3 w - - 0 1"
ROOK = "8/r4k1K/8/8/8/8/8/8 w - - 0 1"
FIFTY_MOVES = "8/8/4k3/8/8/4p2r/4K3/7R w - - 90 100"
BLOCKED = "6k1/4p1p1/4P1P1/8/8/4p1p1/4P1P1/6K1 w - - 0 1"
MATE_IN_TWO = "kbK5/pp6/1P6/8/8/8/8/R7 w - - 0 1"
ROOK_AND_KING = "6k1/8/6K1/8/8/8/8/R7 w - - 0 1"
TWO_ROOKS = "8/8/2k5/8/8/8/1RR5/K7 b - - 0 1"
LOST = "7k/8/5K2/6Q1/8/8/8/8 b - - 0 1"

SHUFFLED = ["g1f3", "g8f6", "f3g1", "f6g8", "g1f3", "g8f6"]
"""A game whose positions have occurred before."""


def default_params() -> SearchParams:
    """What the default options are to the core, with less memory."""
    return search_params(Options(tree_memory=64, hash=64, subtree_value_bias=0.0), 1, solves_endings=False)


def rules_of(params: SearchParams) -> Rules:
    values: dict[str, Any] = {}
    for rule in fields(Rules):
        value = getattr(params, rule.name)
        # The core's are of single precision: 0.2 of 10 visits would be more than 2.
        values[rule.name] = round(value, 6) if isinstance(value, float) else value
    return Rules(**values)


RULES = rules_of(default_params())


class Both:
    """The same searches by the core and by the formulas."""

    def __init__(self, fen: str, moves: Sequence[str] = ()) -> None:
        self._fen, self._moves = fen, list(moves)
        self.plain = PlainSearch(game(fen, moves), RULES)
        self.tree = Tree(default_params())
        self.tree.set_position(game(fen, moves))

    def run(self, visits: int) -> None:
        """So many visits more."""
        wanted = self.plain.root.visits + visits
        self.plain.run(wanted)
        search(self.tree, wanted, batch_size=1)

    def play(self) -> bool:
        """The move that the search chooses; False if the game is over."""
        move = self.tree.children()[0].move
        self._moves.append(move)
        following = game(self._fen, self._moves)
        if following.result()[0] != "undecided":
            return False
        self.plain.play(move)
        self.tree.set_position(following)
        return True

    def assert_same(self) -> None:
        """Visits, values, spread and order of the root's moves."""
        root, info = self.plain.root, self.tree.root_info()
        assert info.visits == root.visits
        assert found(info.evaluation) == pytest.approx((root.q, root.d, root.m), rel=1e-4, abs=1e-5)
        assert (info.proof is not None) == root.proven
        children = children_by_move(self.tree)
        visited = {move: child.visits for move, child in children.items() if child.visits}
        assert visited == {move: child.visits for move, child in root.children.items()}
        for move, child in root.children.items():
            values = -child.q, child.d, child.m + 1
            assert found(children[move].evaluation) == pytest.approx(values, rel=1e-4, abs=1e-5)
            # Around values without noise, to which the core holds each visit, few visits spread otherwise.
            near = 0.01 if child.visits >= 20 else 0.05
            assert children[move].deviation == pytest.approx(child.deviation(), abs=near)
            assert (children[move].proof is not None) == child.proven
        assert [child.move for child in self.tree.children()] == self.plain.ranked()


def found(evaluation: Any) -> tuple[float, float, float]:
    return evaluation.q, evaluation.d, evaluation.m


@pytest.mark.integration
@pytest.mark.parametrize(
    ("fen", "moves"),
    [(START, SHUFFLED)]
    + [(fen, []) for fen in (START, MIDDLEGAME, PAWN_ENDING, PAWNS, BISHOPS, ROOK, FIFTY_MOVES)]
    + [(fen, []) for fen in (BLOCKED, MATE_IN_TWO, ROOK_AND_KING, LOST)],
)
def test_searches_of_a_game_are_those_of_the_formulas(fen: str, moves: list[str]) -> None:
    both = Both(fen, moves)
    both.run(2000)
    both.assert_same()
    for _ply in range(6):
        if not both.play():
            return
        both.run(400)
        both.assert_same()


@pytest.mark.parametrize("seed", range(8))
def test_searches_after_random_openings_are_those_of_the_formulas(seed: int) -> None:
    random, position, moves = Random(seed), game(), list[str]()
    for _ply in range(10 + 6 * seed):
        move = random.choice(position.legal_moves())
        position.push_uci(move)
        if position.result()[0] != "undecided":
            break
        moves.append(move)
    both = Both(START, moves)
    for _ply in range(3):
        both.run(400)
        both.assert_same()
        if not both.play():
            return


@pytest.mark.parametrize(
    ("fen", "visits", "other"),
    [
        (PAWNS, 2000, {"transposition_visits": 0}),
        (ROOK, 2000, {"sticky_endgames": False}),
        (BISHOPS, 2000, {"two_fold_draws": False}),
        (TWO_ROOKS, 2000, {"moves_left_max_effect": 0.0}),
        (PAWN_ENDING, 1000, {"value_choice_share": 1.0}),
        (MIDDLEGAME, 1000, {"value_choice_deviations": 0.0}),
    ],
)
def test_each_option_changes_what_is_compared(fen: str, visits: int, other: dict[str, Any]) -> None:
    found = []
    for rules in (RULES, replace(RULES, **other)):
        plain = PlainSearch(game(fen), rules)
        plain.run(visits)
        counts = {move: child.visits for move, child in plain.root.children.items()}
        found.append((plain.root.q, counts, plain.ranked()[0]))
    assert found[0] != found[1]
