# SPDX-License-Identifier: GPL-3.0-or-later
"""The program driven by python-chess (`chess.engine`), as scripts and bots do."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import chess
import chess.engine
import pytest
from chess.engine import INFO_ALL, Limit, SimpleEngine, UciProtocol

from engine import Engine
from protocol import EvaluatorClient
from tests.paths import REPOSITORY

COMMAND = [sys.executable, str(REPOSITORY / "run_engine.py")]

ENDLESS = Limit(nodes=10**9)

MATE_IN_1 = "6k1/5ppp/8/8/8/8/8/R5K1 w - - 0 1"
MATED_IN_1 = "7k/R7/1R6/8/8/8/8/6K1 b - - 0 1"


def after(*moves: str, fen: str = chess.STARTING_FEN) -> chess.Board:
    board = chess.Board(fen)
    for move in moves:
        board.push_san(move)
    return board


def chess960() -> chess.Board:
    board = chess.Board("1r3kr1/pp3p2/8/8/8/8/PP3P2/1R3KR1 w GBgb - 0 1", chess960=True)
    board.push_san("O-O-O")
    return board


BOARDS = {
    "history": after("e4", "e5", "Nf3", "Nc6", "Ng1", "Nb8", "Nf3", "Nc6"),
    "fen": chess.Board("r1bqkbnr/pppp1ppp/2n5/4p3/2B1P3/5N2/PPPP1PPP/RNBQK2R b KQkq - 3 3"),
    "en passant": after("e4", "a6", "e5", "d5"),
    "chess960": chess960(),
    "mate in 1": chess.Board(MATE_IN_1),
    "mated in 1": chess.Board(MATED_IN_1),
}


@pytest.fixture(scope="module")
def evaluator() -> Iterator[str]:
    with Engine(backend="random") as engine:
        yield engine.evaluator_address


@pytest.fixture(scope="module")
def engine(evaluator: str) -> Iterator[SimpleEngine]:
    with SimpleEngine.popen_uci([*COMMAND, "--evaluator", evaluator], timeout=60) as engine:
        yield engine


@asynccontextmanager
async def program(evaluator: str) -> AsyncIterator[UciProtocol]:
    """A program in the event loop of a test."""
    _, protocol = await chess.engine.popen_uci([*COMMAND, "--evaluator", evaluator])
    try:
        yield protocol
    finally:
        await protocol.quit()


async def until_evaluated(evaluator: str, positions: int) -> None:
    """Wait until an evaluator has evaluated this number of positions since the call."""
    with EvaluatorClient(evaluator) as client:
        wanted = client.status().metrics["positions"] + positions
        while client.status().metrics["positions"] < wanted:
            await asyncio.sleep(0)


@pytest.mark.parametrize("name", BOARDS)
@pytest.mark.parametrize(
    "limit",
    [
        Limit(nodes=40),
        Limit(time=0.03),
        Limit(depth=2),
        Limit(white_clock=0.5, black_clock=0.5, white_inc=0.01, black_inc=0.01, remaining_moves=5),
        Limit(white_clock=0, black_clock=0),
    ],
    ids=str,
)
def test_every_limit_ends_with_a_legal_move(engine: SimpleEngine, name: str, limit: Limit) -> None:
    assert engine.play(BOARDS[name], limit).move in list(BOARDS[name].legal_moves)


def test_scores_have_the_point_of_view_of_the_side_to_move(engine: SimpleEngine) -> None:
    board = after("Ra8", fen=MATE_IN_1)
    assert engine.analyse(board, Limit(nodes=10))["score"].black() == chess.engine.Mate(0)
    score = engine.analyse(chess.Board(MATED_IN_1), Limit(nodes=500))["score"]
    assert score.turn == chess.BLACK and score.is_mate() and score.white() > chess.engine.Cp(0)


def test_options_of_a_call_act_on_it_alone(engine: SimpleEngine) -> None:
    info = engine.analyse(after("e4"), Limit(nodes=10), options={"UCI_ShowWDL": True})
    assert info["wdl"].turn == chess.BLACK and info["wdl"].relative.total() == 1000
    assert "wdl" not in engine.analyse(after("e4"), Limit(nodes=10))


def test_another_game_object_begins_a_new_game(engine: SimpleEngine) -> None:
    first, second = object(), object()
    engine.analyse(chess.Board(), Limit(nodes=500), game=first)
    assert engine.analyse(chess.Board(), Limit(nodes=1), game=first)["nodes"] >= 450
    assert engine.analyse(chess.Board(), Limit(nodes=1), game=second)["nodes"] == 1


def test_the_button_clears_the_tree(engine: SimpleEngine) -> None:
    game = object()
    engine.analyse(chess.Board(), Limit(nodes=500), game=game)
    engine.configure({"ClearTree": None})
    assert engine.analyse(chess.Board(), Limit(nodes=1), game=game)["nodes"] == 1


def test_information_about_the_opponent_is_accepted(engine: SimpleEngine) -> None:
    opponent = chess.engine.Opponent("Somebody", "GM", 2700, False)
    engine.send_opponent_information(opponent=opponent)
    assert engine.play(chess.Board(), Limit(nodes=1), opponent=opponent).move is not None
    engine.send_game_result(chess.Board(), chess.WHITE, "White mates")
    engine.configure({"UCI_Opponent": ""})


def test_a_blocking_analysis_is_iterated_until_the_loop_is_left(engine: SimpleEngine) -> None:
    with engine.analysis(chess.Board(), multipv=2) as analysis:
        for info in analysis:
            if info.get("multipv") == 2:
                break
    best = analysis.wait()
    assert len(analysis.multipv) == 2 and analysis.info["pv"][0] == best.move


async def test_a_new_command_ends_the_running_one(evaluator: str) -> None:
    async with program(evaluator) as protocol:
        analysis = await protocol.analysis(chess.Board())
        await protocol.ping()
        assert (await analysis.wait()).move is not None
        playing = asyncio.create_task(protocol.play(chess.Board(), ENDLESS))
        await until_evaluated(evaluator, 1)
        assert (await protocol.play(chess.Board(), Limit(nodes=1))).move is not None
        with pytest.raises(asyncio.CancelledError):
            await playing


async def test_a_ponder_hit_uses_the_search_during_the_opponents_time(evaluator: str) -> None:
    async with program(evaluator) as protocol:
        board, limit = chess.Board(), Limit(nodes=300)
        first = await protocol.play(board, limit, ponder=True)
        assert first.move is not None and first.ponder is not None
        board.push(first.move)
        board.push(first.ponder)
        await until_evaluated(evaluator, 20_000)  # some of which are speculation
        second = await protocol.play(board, limit, ponder=True, info=INFO_ALL)
        assert second.move in list(board.legal_moves)
        assert second.info["nodes"] > 1000


async def test_another_reply_ends_pondering(evaluator: str) -> None:
    async with program(evaluator) as protocol:
        board, limit = chess.Board(), Limit(nodes=300)
        first = await protocol.play(board, limit, ponder=True)
        assert first.move is not None
        board.push(first.move)
        board.push(next(move for move in board.legal_moves if move != first.ponder))
        second = await protocol.play(board, limit, ponder=True)
        assert second.move in list(board.legal_moves)
        third = await protocol.play(chess.Board(), Limit(nodes=10), info=INFO_ALL, game=1)
        assert third.info["nodes"] == 10
