# SPDX-License-Identifier: GPL-3.0-or-later
"""The engine with python-chess's interfaces, compared with the same calls of the UCI program."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import chess
import chess.engine
import pytest
from chess.engine import INFO_ALL, INFO_BASIC, INFO_NONE, INFO_PV, INFO_SCORE, EngineError, Limit

from engine import Engine
from engine.api.python_chess import WavefrontEngine, WavefrontProtocol
from engine.options import ALIASES, OptionError
from protocol import EvaluatorClient
from tests.paths import REPOSITORY

COMMAND = [sys.executable, str(REPOSITORY / "run_engine.py")]

HANG_SECONDS = 240
"""Limit of a test, which would otherwise wait indefinitely."""

ENDLESS = Limit(nodes=10**9)

CHANGING = {"time", "nps", "hashfull", "depth", "seldepth"}
"""Keys whose values differ between two equal searches. Depths never fall, so they depend on
the times of reports."""

MATE_IN_1 = "6k1/5ppp/8/8/8/8/8/R5K1 w - - 0 1"
MATE_IN_4 = "rnb5/pp1p2k1/6p1/2p2p2/PbP2P2/6P1/Q2NK3/5BNR w - - 1 23"
MATED_IN_1 = "7k/R7/1R6/8/8/8/8/6K1 b - - 0 1"
CHECKMATE = "R5k1/5ppp/8/8/8/8/8/6K1 b - - 0 1"
STALEMATE = "7k/5Q2/6K1/8/8/8/8/8 b - - 0 1"


def after(*moves: str, fen: str = chess.STARTING_FEN) -> chess.Board:
    board = chess.Board(fen)
    for move in moves:
        board.push_san(move)
    return board


def chess960() -> chess.Board:
    board = chess.Board("1r3kr1/pp3p2/8/8/8/8/PP3P2/1R3KR1 w GBgb - 0 1", chess960=True)
    board.push_san("O-O-O")
    return board


def with_null_move() -> chess.Board:
    board = after("e4")
    board.push(chess.Move.null())
    return board


BOARDS = {
    "initial": chess.Board(),
    "history": after("e4", "e5", "Nf3", "Nc6", "Ng1", "Nb8", "Nf3", "Nc6"),
    "fen": chess.Board("r1bqkbnr/pppp1ppp/2n5/4p3/2B1P3/5N2/PPPP1PPP/RNBQK2R b KQkq - 3 3"),
    "en passant": after("e4", "a6", "e5", "d5"),
    "castling": chess.Board("4k3/8/8/8/8/8/8/R3K2R w KQ - 0 1"),
    "chess960": chess960(),
    "null move": with_null_move(),
    "mate in 1": chess.Board(MATE_IN_1),
    "mated in 1": chess.Board(MATED_IN_1),
    "checkmate": chess.Board(CHECKMATE),
    "stalemate": chess.Board(STALEMATE),
}


@pytest.fixture(scope="module")
def program() -> Iterator[chess.engine.SimpleEngine]:
    with chess.engine.SimpleEngine.popen_uci(COMMAND, timeout=60) as engine:
        engine.configure({"Backend": "random"})
        yield engine


@pytest.fixture(scope="module")
def engine() -> Iterator[WavefrontEngine]:
    with WavefrontEngine.open(backend="random") as engine:
        yield engine


@pytest.fixture(scope="module")
def evaluator() -> Iterator[str]:
    with Engine(backend="random") as engine:
        yield engine.evaluator_address


@pytest.fixture
def run(evaluator: str) -> Callable[[Callable[[WavefrontProtocol], Awaitable[None]]], None]:
    """Runs a test with a protocol in an event loop."""

    def with_protocol(test: Callable[[WavefrontProtocol], Awaitable[None]]) -> None:
        async def main() -> None:
            async with asyncio.timeout(HANG_SECONDS):
                _, protocol = await WavefrontProtocol.open(evaluator=evaluator)
                try:
                    await test(protocol)
                finally:
                    await protocol.quit()

        asyncio.run(main())

    return with_protocol


Run = Callable[[Callable[[WavefrontProtocol], Awaitable[None]]], None]


async def until_evaluated(evaluator: str, positions: int) -> None:
    """Wait until an evaluator has evaluated this number of positions since the call."""
    with EvaluatorClient(evaluator) as client:
        wanted = client.status().metrics["positions"] + positions
        while client.status().metrics["positions"] < wanted:
            await asyncio.sleep(0)  # The search also needs the event loop.


def steady(info: chess.engine.InfoDict) -> dict[str, Any]:
    """The entries that are equal in equal searches, and the keys of all."""
    return {key: None if key in CHANGING else value for key, value in info.items()}


# -- same as the UCI program --------------------------------------------------------------------------------


def test_identity_and_options_are_those_of_the_program(
    engine: WavefrontEngine, program: chess.engine.SimpleEngine
) -> None:
    assert engine.id == program.id
    listed = {name: option for name, option in program.options.items() if name not in ALIASES}
    assert dict(engine.options) == listed
    assert engine.options["multipv"] == engine.options["MultiPV"]


@pytest.mark.parametrize("name", BOARDS)
def test_play_equals_that_of_the_program(
    engine: WavefrontEngine, program: chess.engine.SimpleEngine, name: str
) -> None:
    board, game = BOARDS[name], object()
    before = board.copy()
    for nodes in (1, 20, 300):
        mine, its = (
            each.play(board, Limit(nodes=nodes), game=game, info=INFO_ALL) for each in (engine, program)
        )
        assert (mine.move, mine.ponder) == (its.move, its.ponder)
        assert steady(mine.info) == steady(its.info)
    assert board == before and board.move_stack == before.move_stack


@pytest.mark.parametrize("name", BOARDS)
def test_analysis_of_several_lines_equals_that_of_the_program(
    engine: WavefrontEngine, program: chess.engine.SimpleEngine, name: str
) -> None:
    game = object()
    mine, its = (
        each.analyse(BOARDS[name], Limit(nodes=300), multipv=3, game=game) for each in (engine, program)
    )
    assert [steady(info) for info in mine] == [steady(info) for info in its]


@pytest.mark.parametrize("info", [INFO_NONE, INFO_BASIC, INFO_SCORE, INFO_PV, INFO_SCORE | INFO_PV, INFO_ALL])
def test_flags_select_the_same_keys_as_for_the_program(
    engine: WavefrontEngine, program: chess.engine.SimpleEngine, info: chess.engine.Info
) -> None:
    for board in (chess.Board(), chess.Board(CHECKMATE)):
        game = object()
        mine, its = (each.play(board, Limit(nodes=20), game=game, info=info) for each in (engine, program))
        assert mine.info.keys() == its.info.keys()
        mine_of, its_of = (each.analyse(board, Limit(nodes=20), info=info) for each in (engine, program))
        assert mine_of.keys() == its_of.keys()


@pytest.mark.parametrize(
    "options",
    [{"UCI_ShowWDL": True}, {"ScoreType": "Q"}, {"PerPVCounters": True}, {"CPuct": "3.5"}, {"Hash": 8}],
)
def test_options_of_a_call_act_as_in_the_program(
    engine: WavefrontEngine, program: chess.engine.SimpleEngine, options: dict[str, Any]
) -> None:
    for given in (options, {}):  # They are restored after the call.
        game = object()
        mine, its = (
            each.play(after("e4"), Limit(nodes=50), game=game, info=INFO_ALL, options=given)
            for each in (engine, program)
        )
        assert steady(mine.info) == steady(its.info)


def test_root_moves_restrict_the_search_as_in_the_program(
    engine: WavefrontEngine, program: chess.engine.SimpleEngine
) -> None:
    for board, names in ((chess.Board(), ("a3", "h4")), (BOARDS["castling"], ("O-O",))):
        moves = [board.parse_san(name) for name in names]
        game = object()
        mine, its = (
            each.play(board, Limit(nodes=50), game=game, root_moves=iter(moves) if each is engine else moves)
            for each in (engine, program)
        )
        assert mine.move == its.move
        assert mine.move in moves


def test_a_whole_game_equals_that_of_the_program(
    engine: WavefrontEngine, program: chess.engine.SimpleEngine
) -> None:
    board, game = chess.Board.from_chess960_pos(321), object()
    while not board.is_game_over() and board.ply() < 60:
        mine, its = (each.play(board, Limit(nodes=40), game=game) for each in (engine, program))
        assert mine.move == its.move
        assert mine.move is not None
        board.push(mine.move)
    assert board.ply() > 10


# -- limits, scores, games ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "limit",
    [
        Limit(time=0.03),
        Limit(depth=2),
        Limit(nodes=5, time=10),
        Limit(white_clock=0.5, black_clock=0.5, white_inc=0.01, black_inc=0.01, remaining_moves=5),
        Limit(black_clock=0.5),
        Limit(white_clock=0),
    ],
)
def test_every_limit_ends(engine: WavefrontEngine, limit: Limit) -> None:
    board = after("e4", "e5")
    assert engine.play(board, limit).move in list(board.legal_moves)


def test_a_mate_limit_ends_with_the_mate(engine: WavefrontEngine) -> None:
    board = chess.Board(MATE_IN_1)
    info = engine.analyse(board, Limit(mate=1))
    assert info["score"].white() == chess.engine.Mate(1)
    assert board.san(info["pv"][0]) == "Ra8#"
    info = engine.analyse(chess.Board(MATE_IN_4), Limit(mate=4))
    assert info["score"].white() == chess.engine.Mate(4) and len(info["pv"]) == 7
    assert not engine.analyse(chess.Board(MATE_IN_4), Limit(mate=3, nodes=20))["score"].is_mate()


def test_scores_have_the_point_of_view_of_the_side_to_move(engine: WavefrontEngine) -> None:
    board = after("Ra8", fen=MATE_IN_1)
    assert engine.analyse(board, Limit(nodes=10))["score"].black() == chess.engine.Mate(0)
    score = engine.analyse(chess.Board(MATED_IN_1), Limit(nodes=500))["score"]
    assert score.turn == chess.BLACK and score.is_mate() and score.white() > chess.engine.Cp(0)


def test_win_draw_loss_is_shown_with_the_option(engine: WavefrontEngine) -> None:
    wdl = engine.analyse(after("e4"), Limit(nodes=10), options={"UCI_ShowWDL": True})["wdl"]
    assert wdl.turn == chess.BLACK and wdl.relative.total() == 1000


def test_another_game_object_begins_a_new_game(engine: WavefrontEngine) -> None:
    first, second = object(), object()
    engine.analyse(chess.Board(), Limit(nodes=500), game=first)
    assert engine.analyse(chess.Board(), Limit(nodes=1), game=first)["nodes"] >= 450
    assert engine.analyse(chess.Board(), Limit(nodes=1), game=second)["nodes"] == 1


def test_the_button_clears_the_tree(engine: WavefrontEngine) -> None:
    game = object()
    engine.analyse(chess.Board(), Limit(nodes=500), game=game)
    engine.configure({"ClearTree": None})
    assert engine.analyse(chess.Board(), Limit(nodes=1), game=game)["nodes"] == 1


def test_options_are_set_by_uci_name_in_any_case(engine: WavefrontEngine) -> None:
    engine.configure({"uci_showwdl": True, "Move Overhead": 50})
    assert "wdl" in engine.analyse(chess.Board(), Limit(nodes=1))
    engine.configure({"UCI_ShowWDL": "false"})
    assert "wdl" not in engine.analyse(chess.Board(), Limit(nodes=1))


def test_information_about_the_opponent_is_accepted(engine: WavefrontEngine) -> None:
    opponent = chess.engine.Opponent("Somebody", "GM", 2700, False)
    engine.send_opponent_information(opponent=opponent)
    assert engine.play(chess.Board(), Limit(nodes=1), opponent=opponent).move is not None
    engine.send_game_result(chess.Board(), chess.WHITE, "White mates")
    engine.configure({"UCI_Opponent": ""})


# -- errors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"CPuctt": 2}, "CPuct"),
        ({"MultiPV": 2}, "automatically"),
        ({"Hash": -1}, "at least"),
        ({"Hash": "much"}, "expected integer"),
        ({"Hash": None}, "needs a value"),
        ({"CPuct": "much"}, "CPuct"),
        ({"ScoreType": "pawns"}, "ScoreType"),
    ],
)
def test_refused_options_raise_engine_error_and_change_nothing(
    engine: WavefrontEngine, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(EngineError, match=message):
        engine.configure({"UCI_ShowWDL": True, **options})
    with pytest.raises(EngineError, match=message):
        engine.play(chess.Board(), Limit(nodes=1), options=options)
    assert "wdl" not in engine.analyse(chess.Board(), Limit(nodes=1))


def test_refused_arguments_raise_engine_error(engine: WavefrontEngine) -> None:
    board, limit = chess.Board(), Limit(nodes=1)
    with pytest.raises(EngineError, match="root_moves: e2e5 is not legal"):
        engine.play(board, limit, root_moves=[chess.Move.from_uci("e2e5")])
    with pytest.raises(EngineError, match="root_moves: e2e5 is not legal"):
        engine.analysis(board, limit, root_moves=[chess.Move.from_uci("e2e5")])
    with pytest.raises(EngineError, match="no move to choose"):
        engine.play(board, limit, root_moves=[])
    with pytest.raises(EngineError, match="king"):
        engine.play(chess.Board(None), limit)
    with pytest.raises(EngineError, match="increment"):
        engine.play(board, Limit(white_inc=1))
    with pytest.raises(EngineError, match="MultiPV"):
        engine.analyse(board, limit, multipv=1000)
    with pytest.raises(EngineError, match="MultiPV"):
        engine.analyse(board, limit, multipv=0)
    assert engine.play(board, limit).move is not None


def test_variants_are_refused(engine: WavefrontEngine) -> None:
    from chess.variant import AtomicBoard

    with pytest.raises(EngineError, match="atomic"):
        engine.play(AtomicBoard(), Limit(nodes=1))


def test_open_refuses_unknown_options() -> None:
    with pytest.raises(OptionError, match="multi_pv"):
        WavefrontEngine.open(multi_pv=3)


def test_an_engine_without_an_evaluator_is_terminated() -> None:
    with WavefrontEngine.open(evaluator="tcp://127.0.0.1:9") as engine:
        with pytest.raises(chess.engine.EngineTerminatedError, match=r"127\.0\.0\.1:9"):
            engine.play(chess.Board(), Limit(nodes=1))
        assert engine.returncode.result(HANG_SECONDS) == 1
        with pytest.raises(chess.engine.EngineTerminatedError):
            engine.ping()


def test_an_analysis_raises_if_there_is_no_evaluator() -> None:
    async def main() -> None:
        transport, protocol = await WavefrontProtocol.open(evaluator="tcp://127.0.0.1:9")
        with pytest.raises(chess.engine.EngineTerminatedError, match=r"127\.0\.0\.1:9"):
            await (await protocol.analysis(chess.Board())).wait()
        with pytest.raises(chess.engine.EngineTerminatedError):
            await protocol.ping()
        assert await protocol.returncode == 1
        assert transport.get_returncode() == 1

    asyncio.run(main())


@pytest.mark.integration  # The engine tries to reconnect for 10 s.
def test_the_loss_of_the_evaluator_ends_an_analysis_and_then_the_engine() -> None:
    evaluator = Engine(backend="random")
    with WavefrontEngine.open(evaluator=evaluator.evaluator_address) as engine:
        analysis = engine.analysis(chess.Board())
        assert "string" in analysis.get()
        evaluator.close()
        assert analysis.wait().move is not None
        assert "ended early" in analysis.info["string"]
        with pytest.raises(chess.engine.EngineTerminatedError, match="no evaluator"):
            engine.play(chess.Board(), Limit(nodes=1))


def test_a_closed_engine_is_terminated() -> None:
    engine = WavefrontEngine.open(backend="random")
    assert engine.play(chess.Board(), Limit(nodes=1)).move is not None
    engine.close()
    engine.close()
    assert engine.returncode.result(0) == 0
    with pytest.raises(chess.engine.EngineTerminatedError):
        engine.play(chess.Board(), Limit(nodes=1))


def test_quit_ends_the_engine() -> None:
    async def main() -> None:
        transport, protocol = await WavefrontProtocol.open(backend="random")
        await protocol.ping()
        assert transport.get_pid() > 0
        analysis = await protocol.analysis(chess.Board())
        await protocol.quit()
        assert (await analysis.wait()).move is not None
        assert transport.is_closing() and transport.get_returncode() == 0
        with pytest.raises(chess.engine.EngineTerminatedError, match="closed"):
            await protocol.play(chess.Board(), Limit(nodes=1))

    asyncio.run(main())


# -- analysis -----------------------------------------------------------------------------------------------


def test_a_blocking_analysis_is_iterated_until_the_loop_is_left(engine: WavefrontEngine) -> None:
    with engine.analysis(chess.Board(), multipv=2) as analysis:
        for info in analysis:
            if info.get("multipv") == 2:
                break
    assert len(analysis.multipv) == 2
    best = analysis.wait()
    assert best.move in list(chess.Board().legal_moves)
    assert analysis.info["pv"][0] == best.move
    assert isinstance(engine, chess.engine.SimpleEngine)


def test_an_analysis_has_the_surface_of_python_chess(run: Run) -> None:
    async def test(protocol: WavefrontProtocol) -> None:
        with await protocol.analysis(chess.Board(), game=1) as analysis:
            assert "string" in await analysis.get()  # names the network
            assert "pv" in await analysis.get()
            assert analysis.empty() and analysis.would_block()
        best = await analysis.wait()
        assert analysis.info["pv"][0] == best.move
        assert not analysis.would_block()
        assert len([info async for info in analysis]) >= 1
        with pytest.raises(chess.engine.AnalysisComplete):
            await analysis.get()
        assert analysis.empty()
        assert isinstance(protocol, chess.engine.Protocol)

    run(test)


def test_a_bounded_analysis_ends_by_itself(run: Run) -> None:
    async def test(protocol: WavefrontProtocol) -> None:
        analysis = await protocol.analysis(after("e4"), Limit(nodes=100_000))
        infos = [info async for info in analysis]
        assert infos[-1]["nodes"] >= 90_000
        assert analysis.info == {**analysis.info, **infos[-1]}

    run(test)


def test_an_analysis_of_a_finished_game_has_no_move(run: Run) -> None:
    async def test(protocol: WavefrontProtocol) -> None:
        analysis = await protocol.analysis(chess.Board(STALEMATE))
        assert (await analysis.wait()).move is None
        assert analysis.info["score"].relative == chess.engine.Cp(0)

    run(test)


def test_a_new_command_ends_the_running_one(run: Run, evaluator: str) -> None:
    async def test(protocol: WavefrontProtocol) -> None:
        analysis = await protocol.analysis(chess.Board())
        await protocol.ping()
        assert (await analysis.wait()).move is not None
        playing = asyncio.create_task(protocol.play(chess.Board(), ENDLESS))
        await until_evaluated(evaluator, 1)
        assert (await protocol.play(chess.Board(), Limit(nodes=1))).move is not None
        with pytest.raises(asyncio.CancelledError):
            await playing

    run(test)


def test_cancellation_ends_a_command(run: Run) -> None:
    async def test(protocol: WavefrontProtocol) -> None:
        for call in (protocol.play(chess.Board(), ENDLESS), protocol.analyse(chess.Board(), ENDLESS)):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(call, 0.1)
        assert (await protocol.play(chess.Board(), Limit(nodes=1))).move is not None

    run(test)


def test_stop_from_another_thread(engine: WavefrontEngine) -> None:
    analysis = engine.analysis(chess.Board())
    threading.Timer(0.05, analysis.stop).start()
    assert analysis.wait().move is not None


# -- pondering ----------------------------------------------------------------------------------------------


def test_a_ponder_hit_uses_the_search_during_the_opponents_time(run: Run, evaluator: str) -> None:
    async def test(protocol: WavefrontProtocol) -> None:
        board, limit = chess.Board(), Limit(nodes=300)
        first = await protocol.play(board, limit, ponder=True)
        assert first.move is not None and first.ponder is not None
        board.push(first.move)
        board.push(first.ponder)
        await until_evaluated(evaluator, 20_000)  # some of which are speculation
        second = await protocol.play(board, limit, ponder=True, info=INFO_ALL)
        assert second.move in list(board.legal_moves)
        assert second.info["nodes"] > 1000

    run(test)


def test_another_reply_ends_pondering(run: Run, evaluator: str) -> None:
    async def test(protocol: WavefrontProtocol) -> None:
        board, limit = chess.Board(), Limit(nodes=300)
        first = await protocol.play(board, limit, ponder=True)
        assert first.move is not None
        board.push(first.move)
        board.push(next(move for move in board.legal_moves if move != first.ponder))
        second = await protocol.play(board, limit, ponder=True, info=INFO_ALL)
        assert second.move in list(board.legal_moves)
        await until_evaluated(evaluator, 1)
        third = await protocol.play(chess.Board(), Limit(nodes=10), info=INFO_ALL, game=1)
        assert third.info["nodes"] == 10

    run(test)


def test_pondering_works_with_clocks(run: Run) -> None:
    async def test(protocol: WavefrontProtocol) -> None:
        board = chess.Board()
        for _ in range(3):
            limit = Limit(white_clock=1, black_clock=1, white_inc=0.01, black_inc=0.01, remaining_moves=20)
            result = await protocol.play(board, limit, ponder=True)
            assert result.move is not None
            board.push(result.move)
            board.push(result.ponder or next(iter(board.legal_moves)))

    run(test)
