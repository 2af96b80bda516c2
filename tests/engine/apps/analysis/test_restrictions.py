# SPDX-License-Identifier: GPL-3.0-or-later
"""Moves to avoid and moves to allow: which are left at the root, and what the core is told of the rest."""

from engine._core import Game
from engine.apps.analysis.restrictions import core_rules, read_restrictions, root_moves

CASTLING = "4k3/8/8/8/8/8/8/R3K2R w KQ - 0 1"


def test_a_list_of_moves_is_for_the_side_to_move_at_the_root() -> None:
    (avoided,) = read_restrictions("avoid_moves", ["e2e4", "d2d4"])
    game = Game()
    left = root_moves(game, [avoided])
    assert set(game.legal_moves()) - set(left) == {"e2e4", "d2d4"}
    assert core_rules(game, [avoided]) == []
    (allowed,) = read_restrictions("allow_moves", ["e2e4", "e7e5"])
    assert root_moves(game, [allowed]) == ("e2e4",)
    game.push_uci("e2e4")
    assert root_moves(game, [allowed]) == ("e7e5",)


def test_the_other_players_moves_are_no_matter_of_the_root() -> None:
    (avoided,) = read_restrictions("avoid_moves", [{"player": "black", "moves": ["e7e5"], "until_depth": 2}])
    assert len(root_moves(Game(), [avoided])) == 20
    assert core_rules(Game(), [avoided]) == [(False, ("e7e5",), 2, False)]


def test_avoided_and_allowed_moves_hold_together() -> None:
    rules = read_restrictions("allow_moves", ["e2e4", "d2d4"]) + read_restrictions("avoid_moves", ["e2e4"])
    assert root_moves(Game(), rules) == ("d2d4",)
    assert root_moves(Game(), rules + read_restrictions("avoid_moves", ["d2d4"])) == ()


def test_castling_is_understood_in_both_spellings() -> None:
    for written in ("e1g1", "e1h1"):
        assert root_moves(Game(CASTLING), read_restrictions("allow_moves", [written])) == ("e1g1",)
        chess960 = Game(CASTLING, True)
        assert root_moves(chess960, read_restrictions("allow_moves", [written])) == ("e1h1",)
