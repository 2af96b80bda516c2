# SPDX-License-Identifier: GPL-3.0-or-later
"""Engine: the Python API with calls that block."""

import threading
from collections.abc import Iterator
from typing import Any

import chess
import pytest

from engine import Analysis, Engine, EngineError
from engine.api import EngineClosedError, EvaluatorError, PositionError
from engine.options import OptionError
from engine.search.limits import Clock


@pytest.fixture(scope="module")
def shared_engine() -> Iterator[Engine]:
    with Engine(backend="random", smart_pruning_factor=0.0) as opened:
        yield opened


@pytest.fixture
def engine(shared_engine: Engine) -> Engine:
    shared_engine.new_game()
    return shared_engine


def test_play_returns_a_legal_move_and_counts(engine: Engine) -> None:
    engine.position(moves=["e2e4", "e7e5"])
    result = engine.play(nodes=200)
    assert result.best_move in engine.legal_moves
    assert result.info.nodes >= 200
    assert result.info.lines[0].moves[0] == result.best_move


@pytest.mark.parametrize(
    "limit", [{"movetime": 30}, {"depth": 3}, {"clock": Clock(white_ms=200)}, {"nodes": 10, "movetime": 1000}]
)
def test_every_limit_ends(engine: Engine, limit: dict[str, Any]) -> None:
    move = engine.play(**limit).best_move
    assert move is not None
    assert move in engine.legal_moves


@pytest.mark.parametrize("blank", ["\t", "\n", "\r\n", "  "])
def test_position_accepts_any_blanks_of_a_fen(engine: Engine, blank: str) -> None:
    fen = "8/8/8/4k3/8/8/4P3/4K3 w - - 0 1"
    for text in (fen + blank, blank + fen, fen.replace(" ", blank)):
        engine.position(text)
        assert engine.fen == fen
    engine.position(f"startpos{blank}")
    assert engine.fen == chess.STARTING_FEN


def test_moves_of_python_chess_are_accepted_wherever_moves_are(engine: Engine) -> None:
    for first in (chess.Move.from_uci("e2e4"), "e4"):
        engine.position(moves=[first, "e7e5"])
        assert "4p3/4P3" in engine.fen
    with pytest.raises(PositionError, match="move 2: 'Nf3'"):
        engine.position(moves=["e4", "Nf3"])
    (move,) = (each for each in chess.Board(engine.fen).legal_moves if each.uci() == "g1f3")
    assert engine.play(nodes=5, search_moves=[move]).best_move == "g1f3"
    assert engine.analyse(nodes=5, search_moves=[move]).best_move == "g1f3"
    assert [found.best_move for found in engine.analysis(nodes=5, search_moves=[move])][-1] == "g1f3"


@pytest.mark.parametrize("wrong", [3, None, b"e2e4", ["e2e4"]])
def test_position_names_what_is_no_move_or_fen(engine: Engine, wrong: Any) -> None:
    with pytest.raises(PositionError, match=f"move 2 is .* not a {type(wrong).__name__}"):
        engine.position(moves=["e2e4", wrong])
    if wrong is not None:
        with pytest.raises(PositionError, match=type(wrong).__name__):
            engine.position(wrong)


@pytest.mark.integration
def test_analyse_gives_several_lines(engine: Engine) -> None:
    engine.position("r1bqkbnr/pppp1ppp/2n5/4p3/2B1P3/5N2/PPPP1PPP/RNBQK2R b KQkq - 3 3")
    seen: list[Analysis] = []
    analysis = engine.analyse(nodes=300_000, multipv=3, on_report=seen.append)
    assert len(analysis.lines) == 3
    assert analysis.best_move == analysis.lines[0].moves[0]
    assert seen and seen[0].nodes < analysis.nodes


def test_analysis_is_iterated_until_the_loop_is_left(engine: Engine) -> None:
    counts = []
    for analysis in engine.analysis(multipv=2):
        counts.append(analysis.nodes)
        if len(counts) == 3:
            break
    assert counts == sorted(counts)
    assert engine.play(nodes=10).best_move is not None, "the engine is free again"


def test_a_bounded_analysis_ends_with_its_final_state(engine: Engine) -> None:
    *_earlier, last = engine.analysis(nodes=1000)
    assert last.nodes >= 1000


def test_a_refused_analysis_does_not_stop_the_next_search(engine: Engine) -> None:
    with pytest.raises(PositionError, match="search_moves"):
        next(iter(engine.analysis(nodes=10, search_moves=["e2e5"])))
    assert engine.play(nodes=500).info.nodes >= 500


def test_stop_from_another_thread(engine: Engine) -> None:
    threading.Timer(0.05, engine.stop).start()
    assert engine.analyse(nodes=10**9).nodes < 10**9


def test_search_moves_may_write_castling_either_way(engine: Engine) -> None:
    fen = "4k3/8/8/8/8/8/8/4K2R w K - 0 1"
    for chess960, castling in ((False, "e1g1"), (True, "e1h1")):
        engine.position(fen, chess960=chess960)
        for spelling in ("e1g1", "e1h1"):
            assert engine.play(nodes=5, search_moves=[spelling]).best_move == castling


def test_a_finished_game_has_no_move(engine: Engine) -> None:
    engine.position("7k/6Q1/6K1/8/8/8/8/8 b - - 0 1")
    assert engine.play(nodes=10).best_move is None
    assert engine.analyse(nodes=10).lines == ()


def test_errors_are_typed_and_leave_the_engine_usable(engine: Engine) -> None:
    engine.position(moves=["e2e4"])
    before = engine.fen
    with pytest.raises(PositionError, match="move 1"):
        engine.position(moves=["e2e5"])
    with pytest.raises(PositionError):
        engine.position("not a fen")
    with pytest.raises(PositionError, match="search_moves"):
        engine.play(nodes=1, search_moves=["e2e4"])
    with pytest.raises(ValueError, match="say how long"):
        engine.play()
    with pytest.raises(ValueError, match="nodes"):
        engine.play(nodes=0)
    with pytest.raises(ValueError, match="nodes"):
        next(engine.analysis(nodes=0))
    with pytest.raises(OptionError, match="MultiPV"):
        engine.analyse(nodes=1, multipv=0)
    assert engine.fen == before
    assert engine.play(nodes=1).best_move is not None


def test_a_closed_engine_says_so() -> None:
    engine = Engine(backend="random")
    engine.close()
    engine.close()
    with pytest.raises(EngineClosedError):
        engine.play(nodes=1)


@pytest.mark.integration
def test_unknown_options_networks_and_evaluators_are_refused() -> None:
    with pytest.raises(OptionError, match="multi_pv"):
        Engine(multi_pv=3)
    with pytest.raises(EvaluatorError, match=r"missing\.pb\.gz"):
        Engine(weights="missing.pb.gz")
    with pytest.raises(EvaluatorError, match=r"127\.0\.0\.1:9"):
        Engine(evaluator="tcp://127.0.0.1:9")
    assert issubclass(EvaluatorError, EngineError)
