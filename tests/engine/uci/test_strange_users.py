# SPDX-License-Identifier: GPL-3.0-or-later
"""Users that no GUI is: what they send is refused or survived, and every `go` gets one legal move."""

import os
import random
import sys

import chess
import psutil
import pytest

from engine.options import OPTIONS
from evaluator.backends.common.threads import default_threads
from protocol.common.settings.spec import Setting
from tests.engine.uci.uci_process import UciProcess, legal_moves, shared_engine, word_after
from tests.paths import REPOSITORY

pytestmark = pytest.mark.integration

OF_THE_EVALUATOR = ("WeightsFile", "Backend", "Evaluator", "EvaluatorKeys", "EvaluatorCompression", "Threads",
                    "PolicyHead", "ValueHead")  # fmt: skip
"""Options that begin another evaluator."""


def errors(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("info string error")]


# -- options -------------------------------------------------------------------------------------------------


def taken_and_refused(option: Setting) -> tuple[list[str], list[str]]:
    """Values at the limits of an option, and past them."""
    refused = ["a\x00b"]
    if isinstance(option.default, bool):
        return ["true", "false"], [*refused, "maybe", ""]
    if isinstance(option.default, int | float):
        step = 1 if isinstance(option.default, int) else 1e-6 * max(1.0, abs(option.low), abs(option.high))
        refused += [
            repr(option.low - step),
            repr(option.high + step),
            "nan",
            "inf",
            "-inf",
            "1e999",
            "0x1",
            "",
        ]
        return [repr(option.low), repr(option.high)], refused
    if option.choices:
        return [*option.choices], [*refused, "none of them", ""]
    return [option.text(option.default)], refused


@pytest.mark.parametrize("searching", [False, True])
def test_every_option_takes_its_limits_and_refuses_what_is_past_them(searching: bool) -> None:
    with UciProcess("SyzygyPath <empty>") as engine:
        engine.sync()
        for option in OPTIONS:
            if option.title in (*OF_THE_EVALUATOR, "LogFile", "Hash"):
                continue
            taken, refused = taken_and_refused(option)
            for value in (*taken, *refused, option.text(option.default)):
                if searching:
                    engine.send("go infinite")
                engine.send(f"setoption name {option.title} value {value}")
                said = errors(engine.sync())
                assert len(said) == (value in refused), (option.title, value, said)
                if said:
                    assert option.title in said[0]
                if searching:
                    engine.ask("stop", "bestmove")
                else:
                    assert engine.best_move("go nodes 3") in legal_moves(), (option.title, value)


def test_options_set_to_the_values_in_force_start_no_other_evaluator() -> None:
    chosen = [("Threads", default_threads()), ("WeightsFile", "wavefront-cpu")]
    with UciProcess("Backend onnx") as engine:

        def evaluators() -> list[psutil.Process]:
            return [each for each in psutil.Process(engine.pid).children() if "evaluator" in each.cmdline()]

        engine.sync()
        (before,) = evaluators()
        own = {"Backend": "onnx"}
        texts = [(option.title, own.get(option.title, option.text(option.default))) for option in OPTIONS]
        for title, value in (*texts, *chosen):
            engine.send(f"setoption name {title} value {value}")
            assert not errors(engine.sync())
        assert evaluators() == [before]
        engine.send(f"setoption name Threads value {default_threads() + 1}")
        engine.sync()
        assert evaluators() != [before]


def test_evaluator_options_refuse_impossible_arguments() -> None:
    with shared_engine() as engine:
        for option in OF_THE_EVALUATOR:
            engine.send(f"setoption name {option} value a\x00b")
            assert option in errors(engine.sync())[0]
        assert engine.best_move("go nodes 3") in legal_moves()


@pytest.mark.parametrize("option", ["WeightsFile", "Backend", "PolicyHead"])
def test_a_value_that_looks_like_a_flag_is_a_value(option: str) -> None:
    backend = () if option == "Backend" else ("Backend onnx",)
    with UciProcess(*backend, f"{option} --help") as engine:
        assert "--help" in errors(engine.sync())[0]
        engine.send("go nodes 3")
        assert engine.wait()[0] == 1


@pytest.mark.skipif(os.name != "posix", reason="bounds the memory of a process")
def test_search_continues_when_a_cache_cannot_be_had() -> None:
    limited = ("sh", "-c", f"ulimit -v 8000000; exec {sys.executable} {REPOSITORY / 'run_engine.py'}")
    with UciProcess("Backend random", "Hash 16384", command=limited) as engine:
        engine.sync()
        first, second = (engine.ask(f"go nodes {nodes}", "bestmove") for nodes in (20, 40))
        told = "info string there is no memory for a Hash of 16384 MB: 64 MB are taken"
        assert first.count(told) == 1 and told not in second
        assert " nodes 0 " not in first[-2] and not errors(first + second)


# -- positions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_games_of_hundreds_of_moves(seed: int) -> None:
    chance, board = random.Random(seed), chess.Board()
    # Draws that would have to be claimed end no game.
    while len(board.move_stack) < 1000 and (legal := list(board.legal_moves)):
        board.push(chance.choice(legal))
    moves = [move.uci() for move in board.move_stack]
    with shared_engine() as engine:
        engine.sync()
        engine.send(f"position startpos moves {' '.join(moves)}")
        assert errors(engine.sync()) == []
        assert engine.best_move("go nodes 5") in (legal_moves(board.fen()) or {"(none)"})
        half = len(moves) // 2
        engine.send(f"position startpos moves {' '.join([*moves[:half], 'a1a1', *moves[half:]])}")
        assert f"no position is set: move {half + 1}: " in errors(engine.sync())[0]


# -- go ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
def test_any_words_after_go_get_one_legal_move(seed: int) -> None:
    chance = random.Random(seed)
    words = ["nodes", "movetime", "depth", "mate", "wtime", "btime", "winc", "binc", "movestogo", "infinite",
             "ponder", "searchmoves", "perft", "go", "moves", "e2e4", "a2a3", "e7e8q", "0000", "O-O", "e1h1",
             "-", "--", "1", "2", "7", "0", "-1", "9" * 20, "1.5", "1e3", "nan", "\x00", "\ufeff", "１２",
             "value", ""]  # fmt: skip
    with shared_engine() as engine:
        engine.sync()
        for _go in range(100):
            engine.send("position startpos")
            engine.send("go " + " ".join(chance.choices(words, k=chance.randrange(9))))
            engine.send(chance.choice(["stop", "ponderhit", "isready", "position startpos", "ucinewgame"]))
            assert engine.ask("stop", "bestmove")[-1].split()[1] in legal_moves()
            assert not any(line.startswith("bestmove") for line in engine.sync())


def test_faults_of_a_command_are_reported_once_and_not_for_ever() -> None:
    with shared_engine() as engine:
        engine.sync()
        said = errors(engine.ask("go nodes 3 searchmoves e2e4" + " e2e5" * 10_000, "bestmove"))
        assert len(said) == 1
        unknown = " ".join(f"word{number}" for number in range(10_000))
        said = errors(engine.ask(f"go nodes 3 {unknown}", "bestmove"))
        assert len(said) == 11 and said[-1].endswith("and 9990 more like these")


# -- the ends of lines and of input --------------------------------------------------------------------------


@pytest.mark.parametrize("go", [b"go nodes 300", b"go ponder nodes 300\nponderhit"])
def test_a_bounded_search_is_finished_at_the_end_of_input(go: bytes) -> None:
    with UciProcess("SmartPruningFactor 0") as engine:
        engine.send_bytes(b"position startpos\n" + go + b"\n")
        engine.end_input()
        status, rest = engine.wait()
        assert status == 0 and int(word_after(rest[-2], "nodes")) >= 300


@pytest.mark.parametrize(
    "line", ["go infinite", "go ponder wtime 100 btime 100", "isready", "quit now", "x quit"]
)
def test_the_end_comes_in_the_middle_of_anything(line: str) -> None:
    with UciProcess() as engine:
        engine.send("position startpos")
        engine.send(line)
        engine.end_input()
        status, rest = engine.wait()
        assert status == 0
        assert sum(each.startswith("bestmove") for each in rest) == line.startswith("go")
