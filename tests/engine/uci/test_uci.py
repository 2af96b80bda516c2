# SPDX-License-Identifier: GPL-3.0-or-later
"""The UCI engine as a process: every command, bad input, and nothing but UCI on standard output."""

import os
import subprocess
from itertools import pairwise

import chess
import pytest

from engine.options import ALIASES, OPTIONS
from tests.engine.uci.uci_process import (
    AFTER_E4,
    COMPUTED_BY,
    UciProcess,
    legal_moves,
    shared_engine,
    word_after,
)
from tests.programs import ENGINE, command, python, run

pytestmark = pytest.mark.integration

MATED = "7k/6Q1/6K1/8/8/8/8/8 b - - 0 1"
STALEMATED = "7k/5Q2/6K1/8/8/8/8/8 b - - 0 1"


def test_uci_lists_every_option_once_with_those_of_most_users_first() -> None:
    with shared_engine() as engine:
        lines = engine.ask("uci", "uciok")
        assert lines[0].startswith("id name Wavefront")
        named = [line.split(" type ")[0].removeprefix("option name ") for line in lines if "option" in line]
        titles = [option.title for option in sorted(OPTIONS, key=lambda option: option.advanced)]
        assert named == [*titles, *ALIASES, "ClearTree", "SaveTree", "LoadTree", "UCI_EngineAbout"]
        users = {"WeightsFile", "Hash", "SyzygyPath", "UCI_Elo", "MultiPV", "UCI_ShowWDL"}
        assert users <= {*named[:20]} and named[20:21] == ["EvaluatorKeys"]


@pytest.mark.parametrize("fen", [MATED, STALEMATED])
def test_a_finished_game_has_no_best_move(fen: str) -> None:
    with shared_engine() as engine:
        engine.send(f"position fen {fen}")
        lines = engine.ask("go nodes 10", "bestmove")
        assert lines[-2] == f"info depth 0 score {'mate 0' if fen == MATED else 'cp 0'}"
        assert lines[-1] == "bestmove (none)"


def test_go_infinite_waits_for_stop_even_when_all_is_known() -> None:
    with shared_engine() as engine:
        for fen in (chess.STARTING_FEN, MATED, "7k/5Q2/6K1/8/8/8/8/8 w - - 0 1"):
            engine.send(f"position fen {fen}")
            engine.send("go infinite")
            assert not any(line.startswith("bestmove") for line in engine.sync())
            lines = engine.ask("stop", "bestmove")
            assert lines[-1].split()[1] in (legal_moves(fen) or {"(none)"})
            assert not any("error" in line for line in lines)


def test_mate_search_waits_for_stop_when_pondering() -> None:
    with shared_engine() as engine:
        engine.send("position startpos")
        engine.send("go mate 50")
        assert not any(line.startswith("bestmove") for line in engine.sync())
        lines = engine.ask("stop", "bestmove")
        assert any(line.startswith("info string mate in 50 not decided") for line in lines)
        engine.send("position fen 6k1/5ppp/8/8/8/8/8/K2R4 w - - 0 1")
        engine.send("go ponder mate 1")
        assert not any(line.startswith("bestmove") for line in engine.sync())
        lines = engine.ask("ponderhit", "bestmove")
        assert " score mate 1 " in lines[-2]


def test_a_mate_is_found_without_an_evaluator() -> None:
    with UciProcess("WeightsFile /no/such/network") as engine:
        engine.send("position fen 6k1/5ppp/8/8/8/8/8/K2R4 w - - 0 1")
        assert engine.best_move("go mate 1") == "d1d8"


def test_ponderhit_starts_the_clock() -> None:
    with shared_engine("Ponder true", "SmartPruningFactor 0") as engine:
        engine.send("position startpos moves e2e4")
        engine.send("go ponder movetime 300")
        while (pondered := int(word_after(engine.until("info depth")[-1], "time"))) <= 300:
            pass  # The time of the move would be over if it counted already.
        searched = int(word_after(engine.ask("ponderhit", "bestmove")[-2], "time"))
        assert searched >= pondered + 280  # 300 but for a reserve of 5 %


def test_a_bad_position_is_explained_and_leaves_none() -> None:
    with shared_engine() as engine:
        for bad in (
            "position",
            "position fen 8/8/8/8/8/8/8/8 w - - 0 1",
            "position fen rubbish",
            "position startpos moves e2e4 e2e4",
            "position startpos moves e2e9",
            "position fen " + "k" * 1_000_000,
        ):
            engine.send("position fen 6k1/5ppp/8/8/8/8/8/K2R4 w - - 0 1")
            engine.send(bad)
            said = engine.sync()
            assert len(said) == 1 and said[0].startswith("info string error: no position"), (bad[:60], said)
            for go in ("go mate 1", "go movetime 20", "go nodes 5 searchmoves d1d8"):
                assert engine.best_move(go) == "(none)"
            engine.send("go infinite")
            assert not any(line.startswith("bestmove") for line in engine.sync())
            assert engine.best_move("stop") == "(none)"
        engine.send("ucinewgame")
        assert engine.best_move("go nodes 5") in legal_moves()


def test_a_corrected_fen_is_reported_once_and_searched() -> None:
    with shared_engine() as engine:
        for bad, meant in (
            (
                "rnbqkbnr/ppp2ppp/3p4/8/3pP3/5N2/PPP2PPP/RNBQKB1R w KQkq d3 1 3",
                "rnbqkbnr/ppp2ppp/3p4/8/3pP3/5N2/PPP2PPP/RNBQKB1R w KQkq - 1 3",
            ),
            ("4k3/8/8/8/8/8/4K3/7R w KQ - 900", "4k3/8/8/8/8/8/4K3/7R w - - 0 1"),
        ):
            engine.send(f"position fen {bad}")
            (said,) = engine.sync()
            assert said.startswith("info string FEN corrected: ")
            assert engine.best_move("go nodes 5") in legal_moves(meant)


def test_isready_says_what_computes_once() -> None:
    with UciProcess() as engine:
        (said,) = engine.ask("isready", "readyok")[:-1]
        assert said.startswith(COMPUTED_BY)
        assert all(word in said for word in ("random", "device", "batch"))
        assert engine.ask("isready", "readyok") == ["readyok"]
        engine.send("position startpos")
        assert not any(line.startswith(COMPUTED_BY) for line in engine.ask("go nodes 20", "bestmove"))
        engine.send("setoption name Backend value onnx")
        (said,) = engine.ask("isready", "readyok")[:-1]
        assert "CPU" in said
        assert "int8" in said or "fp32" in said  # VNNI or not


def test_an_option_has_the_name_that_bots_know() -> None:
    with shared_engine() as engine:
        engine.send("setoption name Move Overhead value 250")
        assert engine.sync() == []
        assert "option name Move Overhead type spin default 100 min 0 max 10000" in engine.ask("uci", "uciok")
        engine.send("setoption name move overhead value 10001")
        (said,) = engine.sync()
        assert "10001" in said


def test_ignored_limits_and_values_are_reported() -> None:
    with shared_engine() as engine:
        engine.send("position startpos")
        engine.send("go infinite nodes 5 depth 3")
        (said,) = [line for line in engine.sync() if "error" in line]
        assert "nodes" in said and "depth" in said
        engine.ask("stop", "bestmove")
        engine.send("setoption name ClearTree value true")
        (said,) = engine.sync()
        assert "ClearTree" in said


def test_commands_that_mean_nothing_are_reported_and_survived() -> None:
    with shared_engine() as engine:
        for line in ("hello", "goo nodes 5", "\x00\x01", "xyzzy " * 100_000, "ponderhit", "stop"):
            engine.send(line)
        engine.send_bytes(b"\xff\xfe\xfd\n\r\n\r\nregister later\r\ndebug on\r\n")
        said = engine.sync()
        assert all(line.startswith("info string unknown command") for line in said)
        assert len(said) == 5
        engine.send("position startpos")
        assert engine.best_move("go nodes 10") in legal_moves()


def test_commands_during_a_search_end_it_in_order() -> None:
    with shared_engine() as engine:
        engine.send("position startpos")
        for _go in range(3):
            engine.send("go infinite")
        engine.send("position startpos moves e2e4")
        engine.sync()
        assert sum(line.startswith("bestmove") for line in engine.heard) == 3
        assert engine.best_move("go nodes 50") in legal_moves(AFTER_E4)


def test_commands_wait_for_a_search_with_a_limit() -> None:
    with UciProcess("SmartPruningFactor 0") as engine:
        engine.sync()
        positions = [f"position startpos moves {move}" for move in ("e2e4", "d2d4", "c2c4", "g1f3")]
        options = ["isready", "setoption name Hash value 9"]
        between = [[], ["ucinewgame"], ["setoption name ClearTree"], options]
        for position, more in zip(positions, between, strict=True):
            for line in (position, "go nodes 3000", *more):
                engine.send(line)
        engine.end_input()
        status, rest = engine.wait()
        assert status == 0
        infos = [info for info, best in pairwise(rest) if best.startswith("bestmove")]
        counts = [int(word_after(info, "nodes")) for info in infos]
        assert len(counts) == 4 and min(counts) >= 3000


@pytest.mark.parametrize("ending", ["stop", "quit"])
def test_stop_and_quit_end_a_search_that_commands_wait_for(ending: str) -> None:
    with UciProcess() as engine:
        engine.send("position startpos")
        for _search in range(3):
            engine.send("go movetime 1000000")
            engine.send("position startpos moves e2e4")
        engine.send("isready")
        engine.until("readyok")
        engine.send(ending)
        if ending == "stop":
            while sum(line.startswith("bestmove") for line in engine.heard) < 3:
                engine.until("bestmove")
            assert engine.sync() == []
        else:
            status, rest = engine.wait()
            assert status == 0
            assert sum(line.startswith("bestmove") for line in rest) == 3


def test_an_option_set_during_a_search_counts_for_the_next() -> None:
    with shared_engine() as engine:
        engine.send("position startpos")
        engine.send("go infinite")
        engine.send("setoption name MultiPV value 2")
        engine.sync()
        engine.ask("stop", "bestmove")
        assert " multipv 2 " in engine.ask("go nodes 50", "bestmove")[-2]


def test_a_log_file_that_cannot_be_written_is_reported() -> None:
    with UciProcess("LogFile /nowhere/at/all") as engine:
        assert any("LogFile" in line for line in engine.sync())


def test_stray_output_does_not_reach_the_gui() -> None:
    script = (
        "import os, sys\n"
        "from engine.uci.output import Output\n"
        "output = Output()\n"
        "print('stray print'); sys.stdout.flush(); os.write(1, b'stray write')\n"
        "output.send('uciok')\n"
    )
    done = python(script)
    assert done.stdout.splitlines() == ["uciok"]
    assert "stray print" in done.stderr and "stray write" in done.stderr


def engine_without(closing: str, commands: str) -> subprocess.CompletedProcess[str]:
    """Run an engine that a shell starts with a stream closed. closing: in the shell's words."""
    return run("sh", "-c", f'"$0" "$1" {closing}', *ENGINE, input=commands)


@pytest.mark.skipif(os.name != "posix", reason="needs a POSIX shell")
def test_an_engine_without_standard_error_still_speaks_uci() -> None:
    done = engine_without("2>&-", "setoption name Backend value random\nposition startpos\ngo nodes 10\n")
    assert done.stdout.splitlines()[-1].startswith("bestmove ")


@pytest.mark.skipif(os.name != "posix", reason="needs a POSIX shell")
def test_an_engine_without_standard_output_ends_as_any_other() -> None:
    assert engine_without(">&-", "uci\nquit\n").stderr == ""


def test_unwritable_log_file_of_the_command_line_is_an_error() -> None:
    done = command("--log-file", "/nowhere/at/all", status=2)
    (line,) = done.stderr.splitlines()
    assert line.startswith("wavefront: LogFile: cannot write /nowhere/at/all")


def test_nothing_heavy_is_imported_before_uciok() -> None:
    script = (  # An editable install first builds, with subprocess.
        "import sys, protocol; built = {'subprocess'} & {*sys.modules}; import engine.cli, engine.uci.loop\n"
        "heavy = {'numpy', 'zmq', 'chess', 'msgpack', 'engine._core', 'argparse', 'subprocess'}\n"
        "print(sorted(heavy & set(sys.modules) - built))\n"
    )
    assert python(script).stdout.strip() == "[]"
