# SPDX-License-Identifier: GPL-3.0-or-later
"""Complete games through the real UCI process, refereed by python-chess."""

import random
import sys
from collections.abc import Iterator
from time import perf_counter

import chess
import chess.engine
import pytest

from tests.paths import REPOSITORY

pytestmark = pytest.mark.integration

COMMAND = [sys.executable, str(REPOSITORY / "run_engine.py")]


@pytest.fixture(params=["random", "auto"])
def engine(request: pytest.FixtureRequest) -> Iterator[chess.engine.SimpleEngine]:
    with chess.engine.SimpleEngine.popen_uci(COMMAND, timeout=60) as opened:
        opened.configure({"Backend": request.param})
        yield opened


def play_out(engine: chess.engine.SimpleEngine, board: chess.Board, limit: chess.engine.Limit) -> int:
    """Play both sides to the end; python-chess raises for an illegal move or a malformed answer. Plies
    played."""
    game = object()
    plies = 0
    while not board.is_game_over(claim_draw=True) and plies < 300:
        result = engine.play(board, limit, game=game, info=chess.engine.INFO_ALL)
        assert result.move is not None
        assert result.info["nodes"] >= 1
        assert "score" in result.info and "pv" in result.info and "nps" in result.info
        assert result.info["pv"][0] == result.move
        board.push(result.move)
        plies += 1
    return plies


def test_a_standard_game_is_played_to_its_end(engine: chess.engine.SimpleEngine) -> None:
    assert play_out(engine, chess.Board(), chess.engine.Limit(nodes=20)) > 10


@pytest.mark.parametrize("seed", [1, 2])
def test_a_chess960_game_is_played_to_its_end(engine: chess.engine.SimpleEngine, seed: int) -> None:
    board = chess.Board.from_chess960_pos(random.Random(seed).randrange(960))
    assert play_out(engine, board, chess.engine.Limit(nodes=20)) > 10


def test_games_from_odd_positions(engine: chess.engine.SimpleEngine) -> None:
    for fen in (
        "8/P6k/8/8/8/8/p6K/8 w - - 0 1",
        "4k3/8/8/8/8/8/8/R3K2R w KQ - 98 70",
        "rnbqkbnr/ppp1p1pp/8/3pPp2/8/8/PPPP1PPP/RNBQKBNR w KQkq f6 0 3",
        "k7/8/K7/8/8/8/8/1Q6 w - - 0 1",
    ):
        play_out(engine, chess.Board(fen), chess.engine.Limit(nodes=30))


def lost_on_time(engine: chess.engine.SimpleEngine) -> int | None:
    """Play a game with a second and ten milliseconds a move, the clock as the referee keeps it, both sides;
    the ply at which one has no time left."""
    board = chess.Board()
    clocks = {chess.WHITE: 1.0, chess.BLACK: 1.0}
    engine.ping()
    while not board.is_game_over(claim_draw=True) and board.ply() < 160:
        side = board.turn
        limit = chess.engine.Limit(
            white_clock=clocks[chess.WHITE], black_clock=clocks[chess.BLACK], white_inc=0.01, black_inc=0.01
        )
        began = perf_counter()
        result = engine.play(board, limit, game=clocks)
        clocks[side] -= perf_counter() - began
        if clocks[side] <= 0:
            return board.ply()
        clocks[side] += 0.01
        assert result.move is not None
        board.push(result.move)
    assert board.ply() > 20
    return None


@pytest.mark.timing
def test_second_with_ten_milliseconds_a_move_is_not_lost(engine: chess.engine.SimpleEngine) -> None:
    assert lost_on_time(engine) is None
