# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of chess, against python-chess on random games and on positions chosen for each rule."""

import copy
import random
from collections import Counter

import chess
import pytest

from engine._core import Game
from tests.engine.core.chess.games import random_games


def play(*moves: str, fen: str | None = None, chess960: bool = False) -> Game:
    game = Game(fen, chess960)
    for move in moves:
        game.push_uci(move)
    return game


def expected_result(board: chess.Board, repetitions: int) -> tuple[str, str]:
    if board.is_checkmate():
        return ("black_won" if board.turn else "white_won"), "checkmate"
    if board.is_stalemate():
        return "draw", "stalemate"
    if board.is_insufficient_material():
        return "draw", "insufficient material"
    if board.halfmove_clock >= 100:
        return "draw", "fifty-move rule"
    if repetitions >= 2:
        return "draw", "threefold repetition"
    return "undecided", ""


@pytest.mark.integration
@pytest.mark.parametrize("chess960", [False, True])
def test_random_games_agree_with_python_chess(chess960: bool) -> None:
    seen: Counter[object] = Counter()
    keys: dict[object, int] = {}
    results: Counter[str] = Counter()
    for game, board in random_games(seed=1, games=48, plies=150, chess960=chess960):
        if not board.move_stack:
            seen.clear()
        identity = (board._transposition_key(), chess960)
        assert sorted(game.legal_moves()) == sorted(map(board.uci, board.legal_moves)), board.fen()
        assert game.fen() == (board.shredder_fen() if chess960 else board.fen())
        assert game.turn == ("white" if board.turn else "black")
        assert game.in_check == board.is_check()
        assert game.rule50 == board.halfmove_clock
        assert game.ply == board.ply()
        assert game.men == len(board.piece_map())
        assert game.repetitions == seen[identity]
        assert game.has_castling_rights == bool(board.clean_castling_rights())
        assert game.result() == expected_result(board, seen[identity])
        assert keys.setdefault(identity, game.key) == game.key
        seen[identity] += 1
        results[game.result()[1]] += 1
    assert len(set(keys.values())) == len(keys), "different positions have different keys"
    assert results["threefold repetition"] > 0
    if not chess960:
        assert (
            min(results[reason] for reason in ("checkmate", "fifty-move rule", "insufficient material")) > 0
        )


def test_moves_are_taken_back_exactly() -> None:
    rng = random.Random(3)
    for game, _ in random_games(seed=2, games=11, plies=60):
        if not game.legal_moves():
            continue
        before = (game.fen(), game.key, game.repetitions, game.plies_since_repetition, game.moves())
        move = rng.choice(game.legal_moves())
        game.push_uci(move)
        assert game.pop() == move
        assert (game.fen(), game.key, game.repetitions, game.plies_since_repetition, game.moves()) == before


def test_copies_are_independent() -> None:
    game = play("e2e4", "e7e5")
    for other in (game.copy(), copy.copy(game), copy.deepcopy(game)):
        other.push_uci("g1f3")
        assert game.moves() == ["e2e4", "e7e5"]
        assert other.moves() == ["e2e4", "e7e5", "g1f3"]
        assert other.start_fen() == chess.STARTING_FEN


def test_nothing_to_take_back() -> None:
    with pytest.raises(ValueError, match="take back"):
        Game().pop()


def test_mate_comes_before_the_fifty_move_rule() -> None:
    game = play("a1a8", fen="6k1/5ppp/8/8/8/8/8/R5K1 w - - 99 80")
    assert game.rule50 == 100
    assert game.result() == ("white_won", "checkmate")


def test_en_passant_that_no_pawn_may_take_does_not_hinder_repetition() -> None:
    # The pawn on e5 attacks d6 but is pinned, so that capturing was never possible.
    game = play("d7d5", fen="4k3/3p4/8/K3P2r/8/8/8/8 b - - 0 1")
    first = game.key
    for move in ("a5a6", "e8e7", "a6a5", "e7e8"):
        game.push_uci(move)
    assert game.key == first
    assert (game.repetitions, game.plies_since_repetition) == (1, 4)


def test_en_passant_that_is_possible_makes_another_position() -> None:
    game = play("d7d5", fen="4k3/3p4/8/K3P3/8/8/8/7r b - - 0 1")
    for move in ("a5a6", "e8e7", "a6a5", "e7e8"):
        game.push_uci(move)
    assert game.repetitions == 0


def test_losing_castling_rights_makes_another_position() -> None:
    game = play(*["h1g1", "h8g8", "g1h1", "g8h8"], fen="r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1")
    assert game.repetitions == 0
    for move in ["h1g1", "h8g8", "g1h1", "g8h8"]:
        game.push_uci(move)
    assert (game.repetitions, game.plies_since_repetition) == (1, 4)


@pytest.mark.parametrize(
    ("fen", "dead"),
    [
        ("8/8/4k3/8/8/3K4/8/8 w - - 0 1", True),
        ("8/8/4k3/8/8/3KN3/8/8 w - - 0 1", True),
        ("8/8/4k3/8/8/3KB3/8/8 w - - 0 1", True),
        ("8/8/4kb2/8/8/3K4/8/B1B5 w - - 0 1", True),
        ("8/8/4kb2/8/8/3K4/8/BB6 w - - 0 1", False),
        ("8/8/4kn2/8/8/3KN3/8/8 w - - 0 1", False),
        ("8/8/4k3/8/8/3KNN2/8/8 w - - 0 1", False),
        ("8/8/4kp2/8/8/3K4/8/8 w - - 0 1", False),
    ],
)
def test_bare_material(fen: str, dead: bool) -> None:
    assert (Game(fen).result() == ("draw", "insufficient material")) is dead


def test_the_start_position_needs_no_fen() -> None:
    assert Game().fen() == chess.STARTING_FEN
    assert Game(chess960=True).fen() == "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w HAha - 0 1"
